"""Make ``tiny_checkpoint/``, a whole checkpoint of 63 kB, and ``tiny_checkpoint_output.json``, what it writes.

    python -m tests.data.make_tiny_checkpoint

The weights are random, so translations mean nothing, but they depend on the source, consist of words and end. Both
are committed, and the output is a promise: a checkpoint written by an earlier version keeps its translations. Run this
again only when the format of checkpoints changes, and say so in the change log.
"""

import json
from pathlib import Path

import torch

from model.checkpoint import load_checkpoint, save_checkpoint
from model.config import TransformerConfig
from model.decoding import DecodingOptions
from model.generation import forbidden_outputs, generate
from model.normalizer import normalize
from model.tokenizer import train_tokenizer
from model.transformer import Transformer

FOLDER = Path(__file__).parent / "tiny_checkpoint"
OUTPUT = Path(__file__).parent / "tiny_checkpoint_output.json"

ENGLISH = """
The spider sits in the middle of her web and waits for the morning.
Every thread tells her where the wind is coming from.
A fly lands on the silk, and the whole web trembles.
She does not see it, but she feels how near it is.
We opened the window because the room was too warm.
My brother is looking for his keys again; he left them in the kitchen.
The plant needs more light and a little water every day.
How many trains leave for the coast on Sunday evening?
They would rather walk than wait another hour for the bus.
Please write your name on the first page of the book.
The old bridge was built three hundred years ago.
If it rains tomorrow, the children will play inside.
I have never tasted such good bread before.
Nobody knew why the lights went out that night.
You can pay at the end of the month, said the woman.
This machine translates one sentence after the other.
""".strip().splitlines()
FRENCH = """
L'araignée est assise au milieu de sa toile et attend le matin.
Chaque fil lui dit d'où vient le vent.
Une mouche se pose sur la soie, et toute la toile tremble.
Elle ne la voit pas, mais elle sent comme elle est proche.
Nous avons ouvert la fenêtre parce que la pièce était trop chaude.
Mon frère cherche encore ses clés ; il les a laissées dans la cuisine.
La plante a besoin de plus de lumière et d'un peu d'eau chaque jour.
Combien de trains partent pour la côte le dimanche soir ?
Ils préfèrent marcher plutôt que d'attendre le bus une heure de plus.
Écrivez votre nom sur la première page du livre, s'il vous plaît.
Le vieux pont a été construit il y a trois cents ans.
S'il pleut demain, les enfants joueront à l'intérieur.
Je n'ai jamais goûté un aussi bon pain.
Personne ne savait pourquoi les lumières se sont éteintes cette nuit-là.
Vous pouvez payer à la fin du mois, dit la femme.
Cette machine traduit une phrase après l'autre.
""".strip().splitlines()

SOURCES = [
    "Hello.",
    "The spider feels the web.",
    "Ninja moved the plant near the window because it needed more sunlight.",
    "How many trains leave on Sunday?",
    "Zürich 🕷 1984",
    "They would rather walk than wait another hour for the bus, said the woman who never knew why the lights went out.",
]
SEARCHES = {
    "greedy": DecodingOptions(),
    "beam": DecodingOptions(beam_size=4, num_hypotheses=2),
    "sampling": DecodingOptions(temperature=0.8, top_k=20, seed=1),
}

VOCAB_SIZE = 400


def make_model(tokenizer):
    config = TransformerConfig(
        source_vocab_size=VOCAB_SIZE,
        target_vocab_size=VOCAB_SIZE,
        d_model=16,
        num_heads=4,
        d_ff=32,
        num_encoder_layers=2,
        num_decoder_layers=2,
        norm="pre",
        final_norm=True,
        tie_output=False,
        output_bias=True,
    )
    model = Transformer(config, seed=206)
    # Plain random weights repeat one token, write parts of characters and hardly ever end.
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "embedding" not in name:
                weight *= 4.0  # louder layers: what is written depends on the source, not only on the last token
        model.output.weight[config.eos_id] *= 1.5
        for token_id in range(VOCAB_SIZE):
            length = len(tokenizer.piece(token_id))
            is_byte = tokenizer.piece(token_id).startswith("<0x")
            model.output.bias[token_id] = -16.0 if is_byte else min(0.0, length - 4.0)  # long pieces are likelier
        model.output.bias[config.eos_id] = 1.0
    return model.eval()


def write_outputs(checkpoint):
    tokenizer = checkpoint.tokenizer
    source_ids = [list(tokenizer.encode(text, "en", add_eos=True).ids) for text in SOURCES]
    forbidden = forbidden_outputs(checkpoint.config, tokenizer)
    outputs = {"revision": checkpoint.revision, "sources": SOURCES, "source_ids": source_ids}
    for name, options in SEARCHES.items():
        generated = generate(checkpoint.model, source_ids, options, forbidden_ids=forbidden)
        outputs[name] = [[list(hypothesis.tokens) for hypothesis in hypotheses] for hypotheses in generated]
        outputs[f"{name}_text"] = [tokenizer.decode(one[0].tokens_without_eos) for one in generated]
    return outputs


def main():
    lines = [
        normalize(line, language).text
        for pair in zip(ENGLISH, FRENCH, strict=True)
        for line, language in zip(pair, ("en", "fr"), strict=True)
    ]
    tokenizer_path = FOLDER.with_suffix(".model")
    tokenizer = train_tokenizer(lines, tokenizer_path, vocab_size=VOCAB_SIZE, character_coverage=1.0, num_threads=1)
    save_checkpoint(
        FOLDER,
        make_model(tokenizer),
        tokenizer_path,
        name="tiny",
        source_language="en",
        target_language="fr",
        training={"steps": 0, "data": "none: the weights are random"},
    )
    tokenizer_path.unlink()
    outputs = write_outputs(load_checkpoint(FOLDER))
    fields = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in outputs.items())
    OUTPUT.write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
