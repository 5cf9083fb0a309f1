"""A report as one HTML page that needs nothing else, as Markdown, and as JSON: put together from what was measured.

    python -m loadtests.sweep --concurrency 1 8 32 --output runs/sweep
    python -m loadtests.peers.http_load | tail -n 1 > runs/http.json
    python -m loadtests.scenarios --output runs/scenarios.json
    python -m loadtests.report --sweep runs/sweep.json --peers runs/http.json --scenarios runs/scenarios.json
    python -m loadtests.report ... --compare loadtests/reports/report.json         # what got slower, with confidence

Written to loadtests/reports/report.{html,md,json}; --output says otherwise. The exit status is 1 if anything is slower:
a point of the sweep, or our times in a scenario, of which even the lower end of the 95 % interval of the ratio of
medians, new by old, from 1,000 bootstrap samples, is above 1.05. Runs on different machines cannot be compared.
"""

from __future__ import annotations

import argparse
import html
import json
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loadtests.arrivals import percentile, percentiles
from loadtests.plots import Line, bar_plot, line_plot

REPORTS = Path(__file__).resolve().parent / "reports"
_BOOTSTRAPS = 1_000
_SLOWER = 1.05
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fdfdfc; --soft: #8883; --good: #00754f; --bad: #b23b00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e6e3; --paper: #161718; --soft: #8885; --good: #4fd0a5; --bad: #ff9a5c; }
}
body { font: 16px/1.55 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1.25rem;
       color: var(--ink); background: var(--paper); }
h1 { font-weight: 650; letter-spacing: -0.01em; } h2 { margin: 2.5rem 0 0.75rem; font-size: 1.2rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 2rem; }
figure { margin: 0; }
svg { width: 100%; height: auto; overflow: visible; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1rem; font-size: 0.9rem; }
dt { opacity: 0.7; } dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
td, th { padding: 0.2rem 0.8rem; text-align: right; border-bottom: 1px solid var(--soft); white-space: nowrap; }
th { font-weight: 600; } td:first-child, th:first-child { text-align: left; padding-left: 0; }
.yes { color: var(--good); } .no, .slower { color: var(--bad); font-weight: 600; }
details summary { cursor: pointer; margin: 1.5rem 0 0.5rem; font-weight: 600; }
"""

Table = tuple[str, list[str], list[list[str]]]
"""Title, head, rows."""

_LONG_ROWS = 20
_OURS, _SINGLE, _HF, _LIBRE = "ours", "ct2 single", "huggingface", "libretranslate"


def write_report(report: dict[str, Any], path: Path) -> None:
    """Write `path`.json, .md and .html; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(_rounded(report), separators=(",", ":")) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(as_markdown(report), encoding="utf-8")
    path.with_suffix(".html").write_text(as_html(report), encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Microseconds are enough."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def as_markdown(report: dict[str, Any]) -> str:
    """Facts and tables."""
    parts = [f"# {_title(report)}", "", *(f"- {name}: {value}" for name, value in facts(report))]
    for title, head, rows in tables(report):
        parts += ["", f"## {title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        parts += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(parts) + "\n"


def as_html(report: dict[str, Any]) -> str:
    """Facts, plots and tables."""
    first, *others = tables(report)
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(_title(report))}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>',
        f"<h1>{html.escape(_title(report))}</h1><dl>",
        *(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts(report)),
        "</dl>",
        *_html_table(first),
        '<h2>Pictures</h2><div class="plots">',
        *(f"<figure>{plot}</figure>" for plot in plots(report)),
        "</div>",
    ]
    for table in others:
        parts += _html_table(table)
    return "\n".join([*parts, "</html>"]) + "\n"


def _html_table(table: Table) -> Iterator[str]:
    title, head, rows = table
    is_long = len(rows) > _LONG_ROWS
    yield f"<details><summary>{html.escape(title)}</summary>" if is_long else f"<h2>{html.escape(title)}</h2>"
    yield f'<div class="wide"><table><tr>{_cells("th", head)}</tr>'
    yield from (f"<tr>{_cells('td', row)}</tr>" for row in rows)
    yield "</table></div>" + ("</details>" if is_long else "")


def compare(old: dict[str, Any], new: dict[str, Any], seed: int = 1) -> list[dict[str, Any]]:
    """What both runs measured: the ratio of the medians, new by old, with its 95 % interval, and whether it is slower.

    Points of the sweep, and our own times in each scenario; what the module says is slower.
    """
    generator = random.Random(seed)
    before, after = _samples(old), _samples(new)
    found = []
    for what, now in after.items():
        was = before.get(what)
        if not was or not now:
            continue
        ratios = sorted(
            statistics.median(generator.choices(now, k=len(now)))
            / statistics.median(generator.choices(was, k=len(was)))
            for _ in range(_BOOTSTRAPS)
        )
        low, high = ratios[int(0.025 * _BOOTSTRAPS)], ratios[int(0.975 * _BOOTSTRAPS) - 1]
        ratio = statistics.median(now) / statistics.median(was)
        found.append({"what": what, "ratio": ratio, "low": low, "high": high, "slower": low > _SLOWER})
    return found


def _samples(report: dict[str, Any]) -> dict[str, list[float]]:
    samples = {
        f"{point['kind']}, {point['tokens']} tokens, {point['concurrency']} clients": point["seconds"]
        for point in report["points"]
    }
    for name, scenario in report.get("scenarios", {}).get("scenarios", {}).items():
        samples[f"scenario {name}"] = scenario["systems"].get(_OURS, {}).get("seconds", [])
    return samples


def goals(report: dict[str, Any]) -> list[list[str]]:
    """What was aimed at: the figure, what was measured, the aim, and whether it is reached."""
    rows: list[list[str]] = []

    def add(figure: str, value: float | None, aim: float, unit: str = "", *, at_most: bool = False) -> None:
        if value is not None:
            reached = value <= aim if at_most else value >= aim
            sign = "at most" if at_most else "at least"
            rows.append([figure, f"{value:,.2f}{unit}", f"{sign} {aim:g}{unit}", "yes" if reached else "no"])

    scenarios = report.get("scenarios", {})
    rates = {name: one["requests_per_second"] for name, one in scenarios.get("sustained", {}).items()}
    batched = [name for name in rates if name.startswith("ct2") and name != _SINGLE]
    rivals = {
        "CTranslate2 with a batcher": (max(batched, key=lambda name: rates[name], default=""), 2.0),
        "CTranslate2, one request a call": (_SINGLE, 4.0),
        "Hugging Face generate": (_HF, 6.0),
        "LibreTranslate": (_LIBRE, 4.0),
    }
    for title, (name, aim) in rivals.items():
        if rates.get(name) and _OURS in rates:
            add(f"Requests/s at p99 <= 1 s, mixed lengths, against {title}", rates[_OURS] / rates[name], aim, "x")
    limits = {"one sentence": 1.15, "sentences": 1.0}
    for fit in report["fits"]:
        if fit["part"] == "end to end" and fit["kind"] in limits:
            title = f"Exponent of end-to-end latency, 16 to 512 tokens, {fit['kind']}"
            add(title, fit["exponent"], limits[fit["kind"]], at_most=True)
    arrays = scenarios.get("arrays", {})
    if _OURS in arrays:
        add("Array of 100 sentences, of 100 times one", arrays[_OURS]["array_against_singles"], 0.25, at_most=True)
        if _LIBRE in arrays:
            ratio = arrays[_LIBRE]["array_seconds"] / arrays[_OURS]["array_seconds"]
            add("Array of 100 sentences, against LibreTranslate", ratio, 4.0, "x")
    if "attention" in scenarios:
        cost = 100 * (1 - scenarios["attention"]["throughput_ratio"])
        add("Attention for 5 % of requests costs throughput", cost, 5.0, " %", at_most=True)
    for one in report.get("overhead", []):
        if one["overhead_seconds"]:
            spent = 1e3 * statistics.median(one["overhead_seconds"])
            add(f"HTTP, tokenization, JSON at {one['tokens']} tokens", spent, 3.0, " ms", at_most=True)
    for name, form in _forms(report):
        _add_form(add, name, form)
    return rows


def _add_form(add: Any, name: str, form: dict[str, Any]) -> None:
    systems, against = form["systems"], form["against"]
    batched = [one for one in systems if one.startswith("ct2") and one != _SINGLE]
    if _OURS not in systems or not batched:
        return
    best = max(batched, key=lambda one: systems[one]["requests_per_second"])
    add(f"{name}: requests/s, 64 at once, against {best}", against[best]["requests_per_second"], 2.0, "x")
    shorts = systems[_OURS]["short_p99_seconds"]
    if shorts:
        ratio = shorts["loaded"] / shorts["idle"]
        add(
            f"{name}: p99 of short requests beside eight of 400 tokens, of its idle value",
            ratio,
            3.0,
            "x",
            at_most=True,
        )
    add(f"{name}: p99 of /healthz", 1e3 * systems[_OURS]["healthz_p99_seconds"], 50.0, " ms", at_most=True)
    add(f"{name}: peak memory, of {best}'s", against[best]["peak_memory"], 1.3, "x", at_most=True)


def facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    """What was measured, on what."""
    machine = report["machine"]
    return [
        ("model", f"{report['model']} ({report['form']})"),
        ("machine", f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"),
        ("load before the start", f"{machine.get('load_before', '?')} (of other programs; idle is below 0.3 or so)"),
        ("versions", ", ".join(f"{name} {number}" for name, number in report["versions"].items())),
        ("settings", ", ".join(f"{name}={value}" for name, value in report["settings"].items())),
        ("arrivals", f"{report['arrivals']}, {report['repeat']} requests or two for each client a point"),
        ("seed", str(report["seed"])),
        ("peak memory of the server", f"{(report['peak_memory_bytes'] or 0) / 2**20:,.0f} MiB"),
        ("date", report["date"]),
    ]


def tables(report: dict[str, Any]) -> list[Table]:
    """All tables that there are figures for."""
    found: list[Table] = [("Aims", ["figure", "measured", "aim", "reached"], goals(report))]
    scenarios = report.get("scenarios", {})
    if "sustained" in scenarios:
        rates = {name: one["requests_per_second"] for name, one in scenarios["sustained"].items()}
        rows = [[name, f"{rate:.1f}", _ratio(rates.get(_OURS, 0.0), rate)] for name, rate in rates.items()]
        head = ["system", "requests/s", "ours against it"]
        found.append(("Requests per second at p99 <= 1 s, mixed lengths of 4-400 tokens", head, rows))
    if scenarios:
        rows = [
            [
                f"{name}: {system}", f"{one['requests_per_second']:.2f}", _ms(one["p50"]), _ms(one["p95"]),
                _ms(one["p99"]), _ms(one["cpu_seconds_per_request"]), str(one["errors"]),
            ]
            for name, scenario in scenarios["scenarios"].items()
            for system, one in scenario["systems"].items()
        ]  # fmt: skip
        found.append(
            ("Scenarios, milliseconds", ["scenario: system", "requests/s", "p50", "p95", "p99", "CPU", "errors"], rows)
        )
    if "arrays" in scenarios:
        rows = [
            [name, f"{one['array_seconds']:.2f}", _ms(one["single_seconds"]), f"{one['array_against_singles']:.2f}"]
            for name, one in scenarios["arrays"].items()
        ]
        head = ["system", "array of 100, s", "one sentence, ms", "array of 100 times one"]
        found.append(("Arrays", head, rows))
    found += [
        (
            "Growth: the exponent of length, 16 to 512 tokens, concurrency 1",
            ["text", "part", "exponent", "95 % interval"],
            [
                [fit["kind"], fit["part"], f"{fit['exponent']:.2f}", f"{fit['low']:.2f} to {fit['high']:.2f}"]
                for fit in report["fits"]
            ],
        ),
        (
            "The quadratic term is a tenth of the time from",
            ["part, one sentence", "tokens"],
            [
                [one["part"], "nowhere measured" if one["tokens"] is None else f"{one['tokens']:,.0f}"]
                for one in report.get("quadratic", [])
            ],
        ),
        (
            "Around the engine, one client, milliseconds",
            ["tokens", "whole answer, p50", "HTTP, sentences, tokens, JSON: p50", "p95"],
            [
                [
                    str(one["tokens"]), _ms(percentile(one["seconds"], 0.5)),
                    _ms(percentile(one["overhead_seconds"], 0.5)), _ms(percentile(one["overhead_seconds"], 0.95)),
                ]
                for one in report.get("overhead", [])
            ],
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
        head = ["form: system", "requests/s", "p50 s", "p95 s", "p99 s", "short p99", "beside long", "/healthz p99 ms"]
        rows = [_peer_row(form, name, entry) for form, name, entry in _peer_entries(report)]
        found.append(("64 requests of 4-400 tokens at once, through HTTP", [*head, "peak MiB"], rows))
        rows = [
            [
                f"{form}: {name}", f"{one['requests_per_second']:.2f}x", f"{one['p99']:.2f}x",
                f"{one['peak_memory'] or 0:.2f}x", _share(one.get("identical_share")), _number(one.get("bleu")),
            ]
            for form, found_form in _forms(report)
            for name, one in found_form["against"].items()
        ]  # fmt: skip
        head = ["ours against", "requests/s", "p99 shorter", "memory", "texts the same", "BLEU against ours"]
        found.append(("Ours against each peer", head, rows))
    found.append(
        (
            "Latency in milliseconds",
            ["text", "clients", "tokens", "p50", "p95", "p99", "first text", "a token", "tokens written", "errors"],
            [_latency_row(point) for point in report["points"]],
        )
    )
    if "compared" in report:
        head = ["what", "ratio of medians", "95 % interval", ""]
        rows = [
            [
                one["what"], f"{one['ratio']:.2f}", f"{one['low']:.2f} to {one['high']:.2f}",
                "SLOWER" if one["slower"] else "",
            ]
            for one in report["compared"]
        ]  # fmt: skip
        found.append(("Against the earlier run", head, rows))
    return [found[0], *(table for table in found[1:] if table[2])]


def plots(report: dict[str, Any]) -> list[str]:
    """All pictures that there are figures for."""
    return [*_scenario_plots(report), *_sweep_plots(report), *_peer_plots(report)]


def _scenario_plots(report: dict[str, Any]) -> Iterator[str]:
    scenarios = report.get("scenarios", {})
    if "sustained" in scenarios:
        bars = [(name, one["requests_per_second"], _colour(name)) for name, one in scenarios["sustained"].items()]
        yield bar_plot("Sustained rate, mixed lengths", "requests per second at p99 <= 1 s; more is better", bars)
    if "mix" in scenarios.get("scenarios", {}):
        lines = []
        for name, one in scenarios["scenarios"]["mix"]["systems"].items():
            times = sorted(one["seconds"])
            curve = [(value, 100 * (place + 1) / len(times)) for place, value in enumerate(times)]
            lines.append(Line(name, curve, colour=_colour(name)))
        rate = scenarios["scenarios"]["mix"]["rate"]
        yield line_plot(
            f"The tail of the mix, {rate:g} requests a second", "seconds", "% answered within", lines, log_x=True
        )
    if "arrays" in scenarios:
        bars = [(name, one["array_seconds"], _colour(name)) for name, one in scenarios["arrays"].items()]
        yield bar_plot("An array of 100 sentences", "seconds; less is better", bars)
    for name, scenario in scenarios.get("scenarios", {}).items():
        bars = [(system, one["p99"], _colour(system)) for system, one in scenario["systems"].items()]
        yield bar_plot(f"{name}: {scenario['what']}", f"p99 in seconds at {scenario['rate']:g} requests a second", bars)


def _sweep_plots(report: dict[str, Any]) -> Iterator[str]:
    points = report["points"]
    yield line_plot(
        "Latency against length (band: p50 to p99)", "source tokens", "seconds, end to end",
        [
            Line(name, [(one["tokens"], percentile(one["seconds"], 0.5)) for one in group], _band(group),
                 number % 4, name.startswith("sentences"))
            for number, (name, group) in enumerate(_series(points))
        ],
        log_x=True, log_y=True,
    )  # fmt: skip
    yield line_plot(
        "Time to the first text, p50", "source tokens", "seconds",
        [
            Line(name, [(one["tokens"], statistics.median(one["first_seconds"])) for one in group],
                 colour=number % 4, is_dashed=name.startswith("sentences"))
            for number, (name, group) in enumerate(_series(points))
        ],
        log_x=True, log_y=True,
    )  # fmt: skip
    yield line_plot(
        "Where the time goes, one sentence, 1 client", "source tokens", "seconds, p50",
        [
            Line(name, [(one["tokens"], statistics.median(one[key])) for one in points
                        if one["kind"] == "one sentence" and one["concurrency"] == 1 and one[key]])
            for name, key in (("encoder", "encode_seconds"), ("decoder", "decode_seconds"), ("all", "seconds"))
        ],
        log_x=True, log_y=True,
    )  # fmt: skip
    yield line_plot(
        "Throughput against concurrency", "clients", "target tokens a second",
        [
            Line(f"{tokens} tokens", [
                (one["concurrency"], sum(one["target_tokens"]) / one["span_seconds"])
                for one in points if one["tokens"] == tokens and one["kind"] == "one sentence"
            ])
            for tokens in (16, 64, 256)
        ],
        log_x=True,
    )  # fmt: skip
    yield line_plot(
        "The batch over time, mixed lengths", "seconds", "requests",
        [
            Line(name, [(one["seconds"], one[key]) for one in report["occupancy"] if key in one])
            for name, key in (("running", "running_requests"), ("waiting", "waiting_requests"))
        ],
    )  # fmt: skip
    yield line_plot(
        "Attention beside the translation", "source tokens", "seconds, p50",
        [
            Line(name, [(one["tokens"], statistics.median(one["seconds"])) for one in report["attention"]
                        if one["attention"] == name and one["seconds"]])
            for name in ("off", "one head", "all heads")
        ],
        log_x=True,
    )  # fmt: skip


def _peer_plots(report: dict[str, Any]) -> Iterator[str]:
    for form, found in _forms(report):
        systems = found["systems"]
        bars = [(name, one["requests_per_second"], _colour(name)) for name, one in systems.items()]
        yield bar_plot(f"64 requests at once, {form}", "requests per second; more is better", bars)
        sizes = [(name, (one["peak_memory_bytes"] or 0) / 2**20, _colour(name)) for name, one in systems.items()]
        yield bar_plot(f"Peak memory of the process, {form}", "MiB; less is better", sizes)


def _colour(system: str) -> int:
    """The same in all pictures."""
    known = {_OURS: 0, _SINGLE: 3, _HF: 4, _LIBRE: 5}
    return known.get(system, 1 if system.startswith("ct2 1x") else 2)


def _series(points: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Points with figures by kind and concurrency."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        if point["seconds"]:
            clients = f"{point['concurrency']} client{'s' if point['concurrency'] > 1 else ''}"
            groups.setdefault(f"{point['kind']}, {clients}", []).append(point)
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


def _forms(report: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, form) for name, form in report.get("peers", {}).items() if isinstance(form, dict) and "systems" in form
    ]


def _peer_entries(report: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(name, system, entry) for name, form in _forms(report) for system, entry in form["systems"].items()]


def _peer_row(form: str, name: str, entry: dict[str, Any]) -> list[str]:
    times = [f"{entry['seconds'][share]:.3f}" for share in ("p50", "p95", "p99")]
    shorts = [
        f"{entry['short_p99_seconds'][one]:.3f}" if entry["short_p99_seconds"] else "-" for one in ("idle", "loaded")
    ]
    memory = f"{(entry['peak_memory_bytes'] or 0) / 2**20:,.0f}"
    row = [f"{form}: {name}", f"{entry['requests_per_second']:.1f}", *times, *shorts]
    return [*row, _ms(entry["healthz_p99_seconds"]), memory]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f}"


def _ratio(value: float, by: float) -> str:
    return f"{value / by:.2f}x" if by else "-"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _title(report: dict[str, Any]) -> str:
    return f"Gossamer under load, {report['form']} model"


def _cells(tag: str, values: Sequence[str]) -> str:
    marks = {"yes": ' class="yes"', "no": ' class="no"', "SLOWER": ' class="slower"'}
    return "".join(f"<{tag}{marks.get(value, '')}>{html.escape(value)}</{tag}>" for value in values)


def main() -> None:
    """Put it together, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", type=Path, required=True, help="JSON of loadtests.sweep")
    parser.add_argument("--peers", type=Path, help="what loadtests.peers.http_load printed; its last line is read")
    parser.add_argument("--scenarios", type=Path, help="JSON of loadtests.scenarios")
    parser.add_argument("--compare", type=Path, help="JSON of an earlier report, or sweep")
    parser.add_argument("--output", type=Path, default=REPORTS / "report", help="path of the report, without ending")
    arguments = parser.parse_args()
    report = json.loads(arguments.sweep.read_text(encoding="utf-8"))
    if arguments.peers:
        report["peers"] = json.loads(arguments.peers.read_text(encoding="utf-8").splitlines()[-1])
    if arguments.scenarios:
        report["scenarios"] = json.loads(arguments.scenarios.read_text(encoding="utf-8"))
    if arguments.compare:
        report["compared"] = compare(json.loads(arguments.compare.read_text(encoding="utf-8")), report)
    write_report(report, arguments.output)
    slower = [one for one in report.get("compared", []) if one["slower"]]
    missed = [row[0] for row in goals(report) if row[3] == "no"]
    sys.stdout.write(f"{arguments.output}.html, .md, .json; {len(slower)} slower than before\n")
    sys.stdout.writelines(f"    slower: {one['what']}, {one['ratio']:.2f}x\n" for one in slower)
    sys.stdout.writelines(f"    not reached: {figure}\n" for figure in missed)
    sys.exit(bool(slower))


if __name__ == "__main__":
    main()
