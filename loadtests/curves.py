"""Curves of a training as SVG files, from the logs of its runs: loss and BLEU over target tokens.

    python -m loadtests.curves runs/en-fr runs/a runs/b runs/f --output docs/models/en-fr

writes docs/models/en-fr-loss.svg and docs/models/en-fr-bleu.svg. Runs that went on from one another are given in order;
the tokens of each are counted on from those of the one before.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from loadtests.plots import Line, line_plot

_POINTS = 60
"""So many of the training loss are drawn: means of neighbours, for a batch's own loss jumps up and down."""

_DEV = {"everyday": "dev, everyday", "other": "dev, all other"}


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The events of one run in the order of their steps; of a step that was taken twice (a resume) the later one."""
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    found = {(event["event"], event["step"]): event for event in events if event["event"] in ("loss", "dev")}
    return sorted(found.values(), key=lambda event: event["step"])


def joined(logs: Iterable[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """All events, each with its millions of target tokens since the first run began."""
    events: list[dict[str, Any]] = []
    before = 0
    for log in logs:
        events += [{**event, "millions": (before + event["target_tokens"]) / 1e6} for event in log]
        before += max((event["target_tokens"] for event in log), default=0)
    return events


def curves(name: str, events: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """SVG of each curve, by what it shows.

    Args:
        name: Of the model.
        events: As `joined` gives them.
    """
    losses = [event for event in events if event["event"] == "loss"]
    dev = [event for event in events if event["event"] == "dev"]
    size = max(1, len(losses) // _POINTS)
    groups = [losses[start : start + size] for start in range(0, len(losses), size)]
    training = [(group[-1]["millions"], mean(event["loss"] for event in group)) for group in groups]

    def lines(what: str) -> list[Line]:
        key = {kind: f"{kind}_{what}" for kind in _DEV}
        return [
            Line(label, [(event["millions"], event[key[kind]]) for event in dev if key[kind] in event])
            for kind, label in _DEV.items()
        ]

    tokens = "target tokens, millions"
    return {
        "loss": line_plot(
            f"{name}: loss", tokens, "nats a token, label-smoothed", [*lines("loss"), Line("training", training)]
        ),
        "bleu": line_plot(f"{name}: BLEU", tokens, "BLEU, greedy", lines("bleu")),
    }


def as_file(svg: str) -> str:
    """An SVG element as a file that is read on any background."""
    head, _, rest = svg.partition(">")
    background = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'{head} xmlns="http://www.w3.org/2000/svg" color="#222">{background}{rest}\n'


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="the runs' folders, in order")
    parser.add_argument("--output", type=Path, required=True, help="path of the files, up to the dash")
    options = parser.parse_args(arguments)
    events = joined(map(read_log, options.runs))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    for what, svg in curves(options.output.name, events).items():
        Path(f"{options.output}-{what}.svg").write_text(as_file(svg), encoding="utf-8")


if __name__ == "__main__":
    main()
