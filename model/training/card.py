"""Write a model's card from what was measured: the logs of its runs, its evaluation, and the table of data sources.

    python -m model.training.card runs/en-fr runs/en-fr-more --scores scores.json \
        --sources ../shared/data/sources.tsv --phase model/training/en-fr.toml \
        --phase model/training/en-fr-more.toml --words model/training/en-fr.md \
        --output model/pretrained/en-fr/MODEL_CARD.md

The words (what the model is for, where it fails) are a person's; every number comes from a file.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from model.training import kept, names, noise, pronouns, rare, substitution, variations
from model.training.settings import load_settings


def model_card(
    words: str,
    config: dict[str, Any],
    logs: dict[str, list[dict[str, Any]]],
    scores: dict[str, Any],
    sources: list[dict[str, str]],
    phases: dict[str, dict[str, float]],
) -> str:
    """Put the parts together.

    Args:
        words: Markdown that opens the card.
        config: The checkpoint's ``config.json``.
        logs: The events of each run's ``log.jsonl``, by the run's name, in order: each began with the weights of the
            one before.
        scores: The JSON of ``gossamer evaluate``.
        sources: Rows of ``sources.tsv``.
        phases: The weight of each source, by the name of the training file that a part of the run followed.

    Returns:
        Markdown.
    """
    return "\n".join(
        [
            words.strip(),
            "",
            "## Scores",
            "",
            *_score_lines(scores),
            "",
            "## Training",
            "",
            *_training_lines(config, logs),
            "",
            "## Data and attribution",
            "",
            *_source_lines(phases, logs, sources),
            "",
        ]
    )


def _score_lines(scores: dict[str, Any]) -> list[str]:
    lengths = list(dict.fromkeys(name for one in scores["sets"] for name in one["by_length"]))
    lines = [
        f"Revision `{scores['revision']}`, {scores['precision']}, beam size {scores['options']['beam_size']}, "
        "every held-out set whole, "
        "each line one sequence, references normalised as the training data are. "
        "BLEU by words of the source in the last columns.",
        "",
        _row(["set", "sentences", "BLEU", "chrF", *(f"{name} words" for name in lengths)]),
        _row(["---", "---:", "---:", "---:", *["---:"] * len(lengths)]),
    ]
    for one in scores["sets"]:
        cells = [one["by_length"].get(name) for name in lengths]
        lines.append(
            _row(
                [one["name"], f"{one['sentences']:,}", f"{one['bleu']:.1f}", f"{one['chrf']:.1f}"]
                + ["" if cell is None else f"{cell[1]:.1f}" for cell in cells]
            )
        )
    signatures = ", ".join(f"`{signature}`" for signature in scores["signatures"].values())
    return [*lines, "", f"sacreBLEU: {signatures}."]


def _training_lines(config: dict[str, Any], logs: dict[str, list[dict[str, Any]]]) -> list[str]:
    training, shape = config["training"], config["model"]
    settings = training["settings"]
    *_, last = logs.values()
    ends = [log[-1] for log in logs.values()]
    dropout = settings["model"].get("dropout", 0.0)
    averaged = training.get("averaged_steps", [training["steps"]])
    lines = [
        f"- **Shape**: {last[0]['parameters']:,} parameters; {shape['num_encoder_layers']} encoder and "
        f"{shape['num_decoder_layers']} decoder layers, {shape['num_heads']} heads, width {shape['d_model']}, "
        f"feed-forward {shape['d_ff']}, {shape['activation']}, {shape['norm']}-norm, {shape['positions']} positions, "
        f"one vocabulary of {shape['target_vocab_size']:,} pieces for both languages.",
        f"- **Command**: `gossamer train` with the files named below, one after another (seed {settings['seed']}).",
        f"- **Work**: {sum(end['step'] for end in ends):,} steps, {sum(end['target_tokens'] for end in ends):,} target "
        f"tokens, {sum(end['seconds'] for end in ends) / 3600:.1f} hours on two CPU cores that also did other work. "
        + (
            "The published weights are an average over the last run's steps."
            if len(averaged) == 1
            else f"The published weights are the mean of {len(averaged)} checkpoints, each an average over steps, that "
            f"of step {' and that of step '.join(map(str, averaged))}: docs/training.md says of which runs."
        ),
        f"- **Recipe** of the run of the last checkpoint: {settings['optimizer']['name']}, peak learning rate "
        f"{settings['optimizer']['learning_rate']}, warm-up {settings['warmup_steps']:,} steps, then a linear fall to "
        f"zero; label smoothing {settings['label_smoothing']}, dropout {dropout}; averaged weights (decay "
        f"{settings['ema_decay']} a step); products in {settings['precision']}.",
        "",
        "Curve, on the development set (averaged weights; loss is label-smoothed, nats a token; BLEU is greedy). "
        "Each run began with a new optimizer and the weights of the one before, or those that docs/training.md names:",
        "",
        _row(["run", "step", "target tokens", "loss, everyday", "BLEU, everyday", "loss, other", "BLEU, other"]),
        _row(["---", *["---:"] * 6]),
    ]
    for name, log in logs.items():
        for event in log:
            if event["event"] == "dev":
                kinds = [
                    f"{event[f'{kind}_{what}']:.2f}" for kind in ("everyday", "other") for what in ("loss", "bleu")
                ]
                lines.append(_row([name, f"{event['step']:,}", f"{event['target_tokens']:,}", *kinds]))
    return lines


def _source_lines(
    phases: dict[str, dict[str, float]], logs: dict[str, list[dict[str, Any]]], sources: list[dict[str, str]]
) -> list[str]:
    pairs: dict[str, int] = {}
    for log in logs.values():
        for event in log:
            pairs |= event.get("pairs_by_source", {})
    rows = {row["source_name"]: row for row in sources}
    for derived, script in (
        (names.SOURCE, names), (rare.SOURCE, rare), (rare.SPLIT_SOURCE, rare),
        (variations.BARE_SOURCE, variations), (variations.JOINED_SOURCE, variations),
        (substitution.SOURCE, substitution),
    ):  # fmt: skip
        rows[derived] = {"licence": f"as {names.BASE}", "attribution": f"made from it by {script.__name__}"}
    noises = [(name, noise) for weights in phases.values() for name in weights if name.startswith("noise-")]
    for derived, script in ((kept.SOURCE, kept), (pronouns.SOURCE, pronouns), *noises):
        rows[derived] = {"licence": "as the sources it is made from", "attribution": f"made by {script.__name__}"}
    lines = [
        "Weight: how often each pair was seen in an epoch, on average, in the part of the run that followed each file.",
        "",
        _row(["source", "pairs", *(f"weight in {name}" for name in phases), "licence", "attribution"]),
        _row(["---", "---:", *["---:"] * len(phases), "---", "---"]),
    ]
    for name in dict.fromkeys(name for weights in phases.values() for name in weights):
        row = rows[name]
        shares = [str(weights.get(name, 0)) for weights in phases.values()]
        lines.append(_row([name, f"{pairs[name]:,}", *shares, row["licence"], row["attribution"]]))
    return lines


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Read the files and write the card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="the runs' folders, in order")
    for name, what in (
        ("scores", "JSON of gossamer evaluate"),
        ("sources", "sources.tsv of the data"),
        ("words", "Markdown that opens the card"),
        ("output", "the card"),
    ):
        parser.add_argument(f"--{name}", type=Path, required=True, help=what)
    parser.add_argument("--phase", type=Path, action="append", required=True, help="training file(s), in order")
    arguments = parser.parse_args()
    logs = {
        run.name: [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
        for run in arguments.runs
    }
    config = json.loads((arguments.output.parent / "config.json").read_text(encoding="utf-8"))
    with arguments.sources.open(encoding="utf-8", newline="") as file:
        sources = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    card = model_card(
        arguments.words.read_text(encoding="utf-8"),
        config,
        logs,
        json.loads(arguments.scores.read_text(encoding="utf-8")),
        sources,
        {path.name: load_settings(path).data.sources for path in arguments.phase},
    )
    arguments.output.write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
