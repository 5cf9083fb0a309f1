"""A report as one HTML page that needs nothing else, as Markdown, and as JSON."""

from __future__ import annotations

import html
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtests.arrivals import percentile, percentiles
from loadtests.plots import Line, line_plot

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #161616; } }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(28rem, 1fr)); gap: 1.5rem; }
figure { margin: 0; }
svg { width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: 0.15rem 0.7rem; text-align: right; border-bottom: 1px solid #8884; }
td:first-child, th:first-child { text-align: left; }
"""

Table = tuple[str, list[str], list[list[str]]]
"""Title, head, rows."""


def write_report(report: dict[str, Any], path: Path) -> None:
    """Write `path`.json, .md and .html; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(as_markdown(report), encoding="utf-8")
    path.with_suffix(".html").write_text(as_html(report), encoding="utf-8")


def as_markdown(report: dict[str, Any]) -> str:
    """Facts and tables."""
    parts = [f"# {_title(report)}", "", *(f"- {name}: {value}" for name, value in facts(report))]
    for title, head, rows in tables(report):
        parts += ["", f"## {title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        parts += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(parts) + "\n"


def as_html(report: dict[str, Any]) -> str:
    """Facts, plots and tables."""
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(_title(report))}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>',
        f"<h1>{html.escape(_title(report))}</h1><ul>",
        *(f"<li>{html.escape(name)}: {html.escape(value)}</li>" for name, value in facts(report)),
        '</ul><div class="plots">',
        *(f"<figure>{plot}</figure>" for plot in plots(report)),
        "</div>",
    ]
    for title, head, rows in tables(report):
        parts.append(f"<h2>{html.escape(title)}</h2><table><tr>{_cells('th', head)}</tr>")
        parts += [f"<tr>{_cells('td', row)}</tr>" for row in rows]
        parts.append("</table>")
    return "\n".join([*parts, "</html>"]) + "\n"


def facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    """What was measured, on what."""
    machine = report["machine"]
    return [
        ("model", f"{report['model']} ({report['form']})"),
        ("machine", f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"),
        ("versions", ", ".join(f"{name} {number}" for name, number in report["versions"].items())),
        ("settings", ", ".join(f"{name}={value}" for name, value in report["settings"].items())),
        ("arrivals", f"{report['arrivals']}, {report['repeat']} requests or two for each client a point"),
        ("seed", str(report["seed"])),
        ("peak memory of the server", f"{(report['peak_memory_bytes'] or 0) / 2**20:,.0f} MiB"),
        ("date", report["date"]),
    ]


def tables(report: dict[str, Any]) -> list[Table]:
    """All tables that there are figures for."""
    found: list[Table] = [
        (
            "Growth: the exponent of length, 16 to 512 tokens, concurrency 1",
            ["text", "part", "exponent", "95 % interval"],
            [
                [fit["kind"], fit["part"], f"{fit['exponent']:.2f}", f"{fit['low']:.2f} to {fit['high']:.2f}"]
                for fit in report["fits"]
            ],
        ),
        (
            "Latency in milliseconds",
            ["text", "clients", "tokens", "p50", "p95", "p99", "first text", "a token", "tokens written", "errors"],
            [_latency_row(point) for point in report["points"]],
        ),
        (
            "Attention beside the translation, milliseconds",
            ["attention", "tokens", "p50", "p95", "errors"],
            [
                [
                    point["attention"], str(point["tokens"]), _ms(percentile(point["seconds"], 0.5)),
                    _ms(percentile(point["seconds"], 0.95)), str(len(point["errors"])),
                ]
                for point in report["attention"]
            ],
        ),
    ]  # fmt: skip
    if "peers" in report:
        found.append(
            (
                "Peers, through HTTP (loadtests.peers.http_load)",
                ["form", "system", "requests/s", "p50 s", "p95 s", "p99 s", "peak MiB"],
                [_peer_row(form, name, entry) for form, name, entry in _peer_entries(report)],
            )
        )
    if "compared" in report:
        head = ["text", "clients", "tokens", "ratio of medians", "95 % interval", ""]
        rows = [
            [
                point["kind"], str(point["concurrency"]), str(point["tokens"]), f"{point['ratio']:.2f}",
                f"{point['low']:.2f} to {point['high']:.2f}", "SLOWER" if point["slower"] else "",
            ]
            for point in report["compared"]
        ]  # fmt: skip
        found.append(("Against the earlier run", head, rows))
    return found


def plots(report: dict[str, Any]) -> list[str]:
    """All pictures that there are figures for."""
    points = report["points"]
    found = [
        line_plot(
            "Latency against length (band: p50 to p99)", "source tokens", "seconds, end to end",
            [
                Line(name, [(one["tokens"], percentile(one["seconds"], 0.5)) for one in group], _band(group))
                for name, group in _series(points)
            ],
            log_x=True, log_y=True,
        ),
        line_plot(
            "Time to the first text", "source tokens", "seconds",
            [
                Line(name, [(one["tokens"], statistics.median(one["first_seconds"])) for one in group])
                for name, group in _series(points)
            ],
            log_x=True, log_y=True,
        ),
        line_plot(
            "Where the time goes, one sentence, 1 client", "source tokens", "seconds",
            [
                Line(name, [(one["tokens"], statistics.median(one[key])) for one in points
                            if one["kind"] == "one sentence" and one["concurrency"] == 1 and one[key]])
                for name, key in (("encoder", "encode_seconds"), ("decoder", "decode_seconds"), ("all", "seconds"))
            ],
            log_x=True, log_y=True,
        ),
        line_plot(
            "Throughput against concurrency", "clients", "target tokens a second",
            [
                Line(f"{tokens} tokens", [
                    (one["concurrency"], sum(one["target_tokens"]) / one["span_seconds"])
                    for one in points if one["tokens"] == tokens and one["kind"] == "one sentence"
                ])
                for tokens in (16, 64, 256)
            ],
        ),
        line_plot(
            "The batch over time, mixed lengths", "seconds", "requests",
            [
                Line(name, [(one["seconds"], one[key]) for one in report["occupancy"] if key in one])
                for name, key in (("running", "running_requests"), ("waiting", "waiting_requests"))
            ],
        ),
        line_plot(
            "Attention beside the translation", "source tokens", "seconds, p50",
            [
                Line(name, [(one["tokens"], statistics.median(one["seconds"])) for one in report["attention"]
                            if one["attention"] == name and one["seconds"]])
                for name in ("off", "one head", "all heads")
            ],
            log_x=True,
        ),
    ]  # fmt: skip
    for form in dict.fromkeys(form for form, _, _ in _peer_entries(report)):
        shares = {"p50": 50, "p95": 95, "p99": 99}
        lines = [
            Line(name, [(shares[share], entry["seconds"][share]) for share in shares])
            for one, name, entry in _peer_entries(report)
            if one == form
        ]
        found.append(line_plot(f"Peers, {form}: the tail of the mix", "percentile", "seconds", lines, log_y=True))
    return found


def _series(points: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Points with figures by kind and concurrency."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        if point["seconds"]:
            groups.setdefault(f"{point['kind']}, {point['concurrency']}", []).append(point)
    return list(groups.items())


def _band(group: Sequence[dict[str, Any]]) -> list[tuple[float, float, float]]:
    return [(one["tokens"], percentile(one["seconds"], 0.5), percentile(one["seconds"], 0.99)) for one in group]


def _latency_row(point: dict[str, Any]) -> list[str]:
    row = [point["kind"], str(point["concurrency"]), str(point["tokens"])]
    if not point["seconds"]:
        return [*row, *["-"] * 6, str(len(point["errors"]))]
    row += [_ms(value) for value in percentiles(point["seconds"]).values()]
    row.append(_ms(statistics.median(point["first_seconds"])))
    row.append(_ms(statistics.median(point["token_seconds"])) if point["token_seconds"] else "-")
    return [*row, f"{statistics.median(point['target_tokens']):.0f}", str(len(point["errors"]))]


def _peer_entries(report: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    forms = {name: form for name, form in report.get("peers", {}).items() if isinstance(form, dict)}
    return [(name, system, entry) for name, form in forms.items() for system, entry in form["systems"].items()]


def _peer_row(form: str, name: str, entry: dict[str, Any]) -> list[str]:
    times = [f"{entry['seconds'][share]:.3f}" for share in ("p50", "p95", "p99")]
    memory = f"{(entry['peak_memory_bytes'] or 0) / 2**20:,.0f}"
    return [form, name, f"{entry['requests_per_second']:.1f}", *times, memory]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f}"


def _title(report: dict[str, Any]) -> str:
    return f"Gossamer: latency against length, {report['form']}"


def _cells(tag: str, values: Sequence[str]) -> str:
    return "".join(f"<{tag}>{html.escape(value)}</{tag}>" for value in values)
