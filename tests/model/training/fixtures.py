"""A tiny bilingual corpus and the settings to train on it in seconds."""

import gzip
import itertools
from pathlib import Path

from model.training.settings import TrainingSettings, settings_from_dict

_SUBJECTS = {"The cat": "Le chat", "My brother": "Mon frère", "A child": "Un enfant", "The teacher": "Le professeur",
             "Our dog": "Notre chien"}  # fmt: skip
_VERBS = {"sees": "voit", "eats": "mange", "wants": "veut", "finds": "trouve", "sells": "vend"}
_OBJECTS = {"an apple": "une pomme", "the bread": "le pain", "two fish": "deux poissons"}


def sentence_pairs() -> list[tuple[str, str]]:
    """75 pairs with a regular grammar."""
    return [
        (f"{subject[0]} {verb[0]} {thing[0]}.", f"{subject[1]} {verb[1]} {thing[1]}.")
        for subject, verb, thing in itertools.product(_SUBJECTS.items(), _VERBS.items(), _OBJECTS.items())
    ]


def write_corpus(folder: Path, num_pairs: int = 75) -> None:
    pairs = sentence_pairs()[:num_pairs]
    lines = [f"{'tatoeba' if index % 3 else 'stories'}\t{en}\t{fr}\n" for index, (en, fr) in enumerate(pairs)]
    with gzip.open(folder / "train.tsv.gz", "wt", encoding="utf-8") as file:
        file.writelines(lines)
    (folder / "dev.tsv").write_text("".join(lines[:12]), encoding="utf-8")


def tiny_settings(folder: Path, **changes: object) -> TrainingSettings:
    values: dict[str, object] = {
        "name": "tiny",
        "source_language": "en",
        "target_language": "fr",
        "model": {
            "d_model": 64, "num_heads": 4, "d_ff": 128, "num_encoder_layers": 2, "num_decoder_layers": 1,
            "norm": "pre", "final_norm": True,
        },
        "data": {
            "train": [str(folder / "train.tsv.gz")],
            "dev": str(folder / "dev.tsv"),
            "sources": {"tatoeba": 1.0, "stories": 1.0},
        },
        "tokenizer": {"vocab_size": 320},
        "optimizer": {"learning_rate": 3e-3},
        "total_steps": 12,
        "warmup_steps": 4,
        "batch_tokens": 120,
        "micro_batches": 2,
        "precision": "float32",
        "log_every": 2,
        "evaluate_every": 1000,
        "threads": 1,
        **changes,
    }  # fmt: skip
    return settings_from_dict(values)
