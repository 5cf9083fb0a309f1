"""MarianMT folders as transformers writes them: tiny, random weights, SentencePiece models trained on the spot."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here is fetched

import functools
import io
import json
import random
import warnings

import sentencepiece
import torch
import transformers

from tests.data.make_tiny_checkpoint import ENGLISH, FRENCH

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

EOS_ID, UNK_ID, PAD_ID = 0, 1, 2
TAGS = (">>deu<<", ">>fra<<", ">>pt_br<<")
MAX_POSITIONS = 64
WIDTH = 32


@functools.cache
def spm_model(side, **options):
    """Bytes of a model as OPUS-MT trains them: unigram, SentencePiece's own normalisation, every character covered."""
    lines, size = {"source": (ENGLISH, 150), "target": (FRENCH, 190)}[side]
    rng = random.Random(len(side))
    words = " ".join(lines).split()
    shuffled = [" ".join(rng.choices(words, k=9)) for _ in range(300)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines + shuffled),
        model_writer=model,
        character_coverage=1.0,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **({"vocab_size": size} | options),
    )
    return model.getvalue()


def spm_pieces(side):
    """The pieces that go into a vocabulary. A few do not, as in OPUS-MT, where it comes from the training data."""
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(spm_model(side))
    pieces = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
    return [piece for piece in pieces[3:] if piece not in ("z", "k", "▁train")]


def make_vocabulary(*sides, tags=()):
    names = ["</s>", "<unk>", "<pad>", *tags]
    for side in sides:
        names += [piece for piece in spm_pieces(side) if piece not in names]
    return {piece: index for index, piece in enumerate(names)}


def make_model(*, separate=False, num_tags=0, seed=0, renormalize=False, **changes):
    """A random model whose targets vary with the source and end at different lengths.

    Plain random weights repeat one token for ever. Here cross-attention looks along the diagonal, so that a target
    follows its source, and it is louder than what the target says about itself.
    """
    sides = ("source",) if separate else ("source", "target")
    vocab_size = len(make_vocabulary(*sides)) + num_tags
    fields = {
        **{"vocab_size": vocab_size, "decoder_vocab_size": len(make_vocabulary("target")) if separate else vocab_size},
        **{"d_model": WIDTH, "share_encoder_decoder_embeddings": not separate},
        **{"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
        **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": MAX_POSITIONS},
        **{"activation_function": "swish", "scale_embedding": True, "forced_eos_token_id": EOS_ID},
        **{"pad_token_id": PAD_ID, "eos_token_id": EOS_ID, "decoder_start_token_id": PAD_ID},
    }
    config = transformers.MarianConfig(**(fields | changes))
    model = transformers.MarianMTModel(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" in name:
                continue
            noise = torch.randn(weight.shape, generator=generator)
            if "shared" in name or "embed_tokens" in name or "lm_head" in name:
                weight.copy_((0.3 if config.scale_embedding else 0.4) * noise)
            elif weight.dim() == 1:
                weight.copy_(("norm.weight" in name) + 0.05 * noise)
            elif "encoder_attn.q_proj" in name or "encoder_attn.k_proj" in name:
                weight.copy_(4.0 * torch.eye(WIDTH) + 0.1 * noise)
            else:
                weight.copy_((2.4 if "encoder_attn" in name else 0.4) * noise / weight.shape[1] ** 0.5)
        model.model.decoder.layers[-1].final_layer_norm.weight *= 2.0
        model.final_logits_bias.copy_(0.1 * torch.randn(model.final_logits_bias.shape, generator=generator))
        model.final_logits_bias[0, EOS_ID] += 7.0
    model.generation_config.bad_words_ids = [[PAD_ID]]
    model.generation_config.max_length = MAX_POSITIONS
    model.generation_config.renormalize_logits = renormalize
    return model


def write_folder(folder, model, *, tags=(), languages=("en", "fr"), safe=True, **tokenizer_options):
    """The folder that `save_pretrained` of model and tokenizer make; returns their tokenizer."""
    folder.mkdir(parents=True)
    is_shared = model.config.share_encoder_decoder_embeddings
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(spm_model(side))
    if is_shared:
        (folder / "vocab.json").write_text(json.dumps(make_vocabulary("source", "target", tags=tags)))
    else:
        (folder / "vocab.json").write_text(json.dumps(make_vocabulary("source", tags=tags)))
        (folder / "target_vocab.json").write_text(json.dumps(make_vocabulary("target")))
    tokenizer = their_tokenizer(folder, languages, separate_vocabs=not is_shared, **tokenizer_options)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    if not safe:
        as_pickle(folder)
    return tokenizer


def their_tokenizer(folder, languages=("en", "fr"), separate_vocabs=False, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        return transformers.MarianTokenizer(
            str(folder / "source.spm"),
            str(folder / "target.spm"),
            str(folder / "vocab.json"),
            str(folder / "target_vocab.json") if separate_vocabs else None,
            source_lang=languages[0],
            target_lang=languages[1],
            separate_vocabs=separate_vocabs,
            **options,
        )


def as_pickle(folder):
    """Replace model.safetensors by pytorch_model.bin, with the tied copies and position tables of older versions."""
    model = transformers.MarianMTModel.from_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
