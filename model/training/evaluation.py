"""How good a model is: loss and BLEU on dev while training, BLEU and chrF on every test set afterwards."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from model.checkpoint import Checkpoint, load_checkpoint
from model.config import Precision
from model.decoding import DecodingOptions
from model.generation import forbidden_outputs, generate, translate_texts
from model.tokenizer import Tokenizer
from model.training.data import DataError, SentencePair, read_pairs
from model.training.loss import label_smoothed_loss
from model.training.settings import TrainingSettings
from model.transformer import Transformer, pad_sequences

# The sentence that the project's explanations carry through the whole architecture, and everyday ones.
_SAMPLES = (
    "Ninja moved the plant near the window because it needed more sunlight.",
    "I would like a cup of coffee, please.",
    "The children were playing in the garden when it started to rain.",
)


@dataclass(frozen=True)
class DevSet:
    """Pairs to watch while training, by kind: everyday sentences and all the rest."""

    kinds: dict[str, list[SentencePair]]

    @classmethod
    def read(cls, path: Path, settings: TrainingSettings) -> DevSet:
        """The first ``dev_sentences`` of each kind whose source is trained on."""
        kinds: dict[str, list[SentencePair]] = {"everyday": [], "other": []}
        for pair in read_pairs(path):
            if pair.source_name not in settings.data.sources:
                continue
            kind = kinds["everyday" if pair.source_name == "tatoeba" else "other"]
            if len(kind) < settings.dev_sentences:
                reverse = settings.data.reverse
                kind.append(SentencePair(pair.source_name, pair.second, pair.first) if reverse else pair)
        return cls({name: pairs for name, pairs in kinds.items() if pairs})


@torch.inference_mode()
def dev_scores(model: Transformer, tokenizer: Tokenizer, dev: DevSet, settings: TrainingSettings) -> dict[str, Any]:
    """Loss (as trained) and greedy BLEU of each kind of dev pairs, and sample translations."""
    scores: dict[str, Any] = {}
    config = model.config
    source_language, target_language = settings.source_language, settings.target_language
    for kind, pairs in dev.kinds.items():
        sources = [tokenizer.encode_ids(pair.first, source_language) + [config.eos_id] for pair in pairs]
        targets = [tokenizer.encode_ids(pair.second, target_language) + [config.eos_id] for pair in pairs]
        loss_sum, count = 0.0, 0
        order = sorted(range(len(pairs)), key=lambda index: len(targets[index]))
        for start in range(0, len(order), 32):
            rows = order[start : start + 32]
            source_ids, source_mask = pad_sequences([sources[index] for index in rows], config.pad_id)
            outputs, _ = pad_sequences([targets[index] for index in rows], config.pad_id)
            inputs = torch.cat((torch.full((len(rows), 1), config.decoder_start_id), outputs[:, :-1]), dim=1)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.precision == "bfloat16"):
                logits = model(source_ids, source_mask, inputs).flatten(0, 1)
            loss = label_smoothed_loss(logits, outputs.flatten(), config.pad_id, settings.label_smoothing)
            loss_sum += float(loss)
            count += sum(len(targets[index]) for index in rows)
        scores[f"{kind}_loss"] = loss_sum / count
        translations = _greedy(model, tokenizer, sources)
        scores[f"{kind}_bleu"] = BLEU().corpus_score(translations, [[pair.second for pair in pairs]]).score
    samples = list(_SAMPLES) if not settings.data.reverse else [dev.kinds["everyday"][0].first]
    ids = [tokenizer.encode_ids(text, source_language) + [config.eos_id] for text in samples]
    scores["samples"] = list(zip(samples, _greedy(model, tokenizer, ids), strict=True))
    return scores


def _greedy(model: Transformer, tokenizer: Tokenizer, sources: list[list[int]]) -> list[str]:
    forbidden = forbidden_outputs(model.config, tokenizer)
    results = generate(model, sources, DecodingOptions(), forbidden_ids=forbidden)
    return [tokenizer.decode(hypotheses[0].tokens_without_eos) for hypotheses in results]


@dataclass(frozen=True)
class SetScores:
    """What a model reached on one held-out set.

    Attributes:
        name: The file's name without its ending.
        sentences: Pairs scored.
        bleu: sacreBLEU, 0 to 100 (Post 2018).
        chrf: chrF2, 0 to 100 (Popovic 2015).
        by_length: BLEU of the pairs whose source has so many words, with their number.
        samples: (source, reference, translation) of the first few.
        seconds: Time of the translation.
    """

    name: str
    sentences: int
    bleu: float
    chrf: float
    by_length: dict[str, tuple[int, float]]
    samples: list[tuple[str, str, str]]
    seconds: float


_LENGTHS = ((1, 5), (6, 10), (11, 20), (21, 40), (41, 10_000))


def evaluate_set(
    checkpoint: Checkpoint, path: Path, options: DecodingOptions, *, limit: int | None = None, num_samples: int = 5
) -> SetScores:
    """Translate a held-out set, each line as one sequence, and score it.

    Args:
        checkpoint: The model. Its languages say which column is read: one that reads English reads the first.
        path: A data file (see data.py), second column English, third French.
        options: How to search.
        limit: Score only the first so many pairs.
        num_samples: Examples to keep.

    Returns:
        The scores.

    Raises:
        DataError: For a damaged file.
    """
    pairs = list(itertools.islice(read_pairs(path), limit))
    if not pairs:
        raise DataError(f"{path}: no pairs")
    reads_first = checkpoint.source_language == "en"
    sources = [pair.first if reads_first else pair.second for pair in pairs]
    references = [pair.second if reads_first else pair.first for pair in pairs]
    started = time.perf_counter()
    translations = translate_texts(checkpoint, sources, options)
    seconds = time.perf_counter() - started
    by_length = {}
    for low, high in _LENGTHS:
        rows = [row for row, source in enumerate(sources) if low <= len(source.split()) <= high]
        if rows:
            score = BLEU().corpus_score([translations[row] for row in rows], [[references[row] for row in rows]])
            by_length[f"{low}-{high}" if high < 10_000 else f"{low}+"] = (len(rows), score.score)
    return SetScores(
        name=path.name.split(".")[0],
        sentences=len(pairs),
        bleu=BLEU().corpus_score(translations, [references]).score,
        chrf=CHRF().corpus_score(translations, [references]).score,
        by_length=by_length,
        samples=list(zip(sources, references, translations, strict=True))[:num_samples],
        seconds=seconds,
    )


def metric_signatures() -> dict[str, str]:
    """SacreBLEU's signatures of the two metrics, which make the scores comparable."""
    bleu, chrf = BLEU(), CHRF()
    bleu.corpus_score(["a"], [["a"]])
    chrf.corpus_score(["a"], [["a"]])
    return {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}


def main(
    model_folder: Path,
    data: list[Path],
    *,
    options: DecodingOptions,
    precision: Precision,
    limit: int | None,
    output: Path | None,
) -> list[SetScores]:
    """Score a checkpoint on held-out sets, with a table for people and JSON for programs.

    Args:
        model_folder: The checkpoint.
        data: Data files, or folders of ``*.tsv`` and ``*.tsv.gz``.
        options: How to search.
        precision: Number format of the matrices.
        limit: Score only the first so many pairs of each set.
        output: Where the JSON goes; None writes none.

    Returns:
        The scores of each set.

    Raises:
        DataError: When there is no such file, or it is damaged.
        CheckpointError: When the model cannot be loaded.
    """
    checkpoint = load_checkpoint(model_folder)
    checkpoint.model.set_precision(precision)
    console = Console()
    results = []
    for path in _data_files(data):
        scores = evaluate_set(checkpoint, path, options, limit=limit)
        results.append(scores)
        console.print(
            f"{scores.name}: BLEU {scores.bleu:.1f}, chrF {scores.chrf:.1f} ({scores.sentences:,} sentences, "
            f"{scores.seconds:.0f} s)",
            highlight=False,
        )
    _print_tables(console, results)
    signatures = metric_signatures()
    for name, signature in signatures.items():
        console.print(f"{name}: {signature}", highlight=False)
    if output is not None:
        facts = {
            "model": checkpoint.name,
            "revision": checkpoint.revision,
            "precision": checkpoint.model.precision,
            "options": dataclasses.asdict(options),
            "signatures": signatures,
            "sets": [dataclasses.asdict(scores) for scores in results],
        }
        output.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return results


def _data_files(data: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in data:
        found = sorted([*path.glob("*.tsv"), *path.glob("*.tsv.gz")]) if path.is_dir() else [path]
        if not found:
            raise DataError(f"{path}: no *.tsv or *.tsv.gz in this folder")
        files += found
    return files


def _print_tables(console: Console, results: list[SetScores]) -> None:
    lengths = list(dict.fromkeys(name for scores in results for name in scores.by_length))
    table = Table("set", "sentences", "BLEU", "chrF", *(f"{name} words" for name in lengths))
    for scores in results:
        cells = [scores.by_length.get(name) for name in lengths]
        table.add_row(
            scores.name,
            str(scores.sentences),
            f"{scores.bleu:.1f}",
            f"{scores.chrf:.1f}",
            *("" if cell is None else f"{cell[1]:.1f} ({cell[0]})" for cell in cells),
        )
    console.print(table)
    samples = Table("source", "reference", "translation", title="Samples")
    for scores in results:
        for sample in scores.samples[:2]:
            samples.add_row(*(Text(part) for part in sample))
    console.print(samples)
