import json
import random
import xml.etree.ElementTree as ElementTree

import pytest

from loadtests.plots import Line, bar_plot, line_plot
from loadtests.report import as_html, as_markdown, compare, goals, write_report
from loadtests.sweep import fit_exponent, fits, quadratic_from, quadratics


def make_point(tokens, seconds, kind="one sentence", concurrency=1):
    return {
        "kind": kind, "concurrency": concurrency, "tokens": tokens, "span_seconds": sum(seconds), "errors": [],
        "requests": len(seconds), "target_tokens": [tokens] * len(seconds), "token_seconds": [0.001],
        **dict.fromkeys(("seconds", "first_seconds", "encode_seconds", "decode_seconds", "total_seconds"), seconds),
    }  # fmt: skip


def make_points(exponent, noise=0.05, factor=0.002):
    generator = random.Random(1)
    lengths = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
    return [
        make_point(length, [factor * length**exponent * generator.lognormvariate(0, noise) for _ in range(8)])
        for length in lengths
    ]


@pytest.mark.parametrize("exponent", [0.8, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found_within_its_interval(exponent):
    fit = fit_exponent(make_points(exponent), "seconds")
    assert fit["low"] <= fit["exponent"] <= fit["high"]
    assert abs(fit["exponent"] - exponent) < 0.05
    assert 0 < fit["high"] - fit["low"] < 0.1


def test_only_lengths_from_16_to_512_count():
    points = make_points(1.0)
    for point in points:
        if not 16 <= point["tokens"] <= 512:
            point["seconds"] = [1000.0]
    assert abs(fit_exponent(points, "seconds")["exponent"] - 1.0) < 0.05
    assert fit_exponent(points[:4], "seconds") is None


def test_what_got_slower_is_flagged_and_noise_is_not():
    old, same, slow = make_points(1.0), make_points(1.0, noise=0.06), make_points(1.0, factor=0.003)
    assert not any(point["slower"] for point in compare({"points": old}, {"points": same}))
    flagged = compare({"points": old}, {"points": slow})
    assert len(flagged) == 9 and all(point["slower"] and 1.3 < point["ratio"] < 1.7 for point in flagged)


@pytest.mark.parametrize("start", [100, 400])
def test_it_is_found_from_where_a_quadratic_term_is_a_tenth(start):
    square = (0.002 + 0.001 * start) / 9 / start**2
    points = [
        make_point(n, [(0.002 + 0.001 * n + square * n**2) * factor for factor in (0.99, 1, 1.01)])
        for n in (4, 8, 16, 32, 64, 128, 256, 512, 1024)
    ]
    assert quadratic_from(points, "seconds") == pytest.approx(start, rel=0.01)


def test_a_linear_time_has_no_quadratic_term():
    points = [make_point(n, [0.003 + 0.001 * n - 1e-9 * n**2]) for n in (4, 8, 16, 32, 64, 128, 256)]
    assert quadratic_from(points, "seconds") == float("inf")
    assert all(one["tokens"] is None for one in quadratics(points))
    assert quadratic_from(points[:4], "seconds") is None


def make_system(rate, p99):
    return {
        "requests_per_second": rate, "p50": p99 / 2, "p95": p99, "p99": p99, "errors": 0, "seconds": [p99 / 2, p99],
        "cpu_seconds_per_request": 0.01,
    }  # fmt: skip


def make_scenarios(ours=0.2):
    systems = {"ours": make_system(6.0, ours), "ct2 1x2": make_system(5.0, 0.5)}
    return {
        "scenarios": {
            "mix": {"what": "4-400 tokens", "rate": 6.0, "systems": systems},
            "chat": {"what": "short", "rate": 20.0, "systems": systems},
        },
        "sustained": {name: {"requests_per_second": rate} for name, rate in (("ours", 32.0), ("ct2 1x2", 20.0))},
        "arrays": {"ours": {"array_seconds": 0.5, "single_seconds": 0.02, "array_against_singles": 0.25}},
        "attention": {"throughput_ratio": 0.97},
    }  # fmt: skip


def make_peers():
    entry = {
        "requests_per_second": 8.0, "seconds": {"p50": 1.0, "p95": 2.0, "p99": 3.0}, "errors": 0,
        "short_p99_seconds": {"idle": 0.02, "loaded": 0.05}, "healthz_p99_seconds": 0.004, "peak_memory_bytes": 2**29,
    }  # fmt: skip
    against = {"requests_per_second": 2.5, "p99": 2.0, "peak_memory": 1.4, "identical_share": 0.5, "bleu": None}
    return {"threads": 2, "opus": {"systems": {"ours": entry, "ct2 1x2": entry}, "against": {"ct2 1x2": against}}}


def make_report():
    points = make_points(1.0)
    return {
        "form": "bundled", "model": "en-fr", "date": "2026-01-01", "seed": 1, "repeat": 8, "peak_memory_bytes": 2**28,
        "machine": {"processor": "x <y>", "cores": 2, "system": "Linux"}, "versions": {"torch": "1"}, "settings": {},
        "arrivals": "closed loop", "points": points, "fits": fits(points),
        "attention": [{"attention": "off", "tokens": 16, "seconds": [0.1], "errors": []}],
        "occupancy": [{"seconds": 0.2, "running_requests": 3.0, "waiting_requests": 1.0}],
    }  # fmt: skip


def test_the_page_needs_nothing_else_and_escapes_what_it_shows():
    page = as_html(make_report())
    assert "x &lt;y&gt;" in page
    assert "<script" not in page and "http" not in page
    assert page.count("<svg") == 6
    with_all = as_html(make_report() | {"scenarios": make_scenarios(), "peers": make_peers()})
    assert with_all.count("<svg") == 6 + 5 + 2  # rates, tail, arrays, two scenarios; requests and memory of the peers


def test_aims_are_told_as_reached_or_not():
    report = make_report() | {"scenarios": make_scenarios(), "peers": make_peers()}
    reached = {row[0]: row[1:] for row in goals(report)}
    rate = "Requests/s at p99 <= 1 s, mixed lengths, against CTranslate2 with a batcher"
    assert reached[rate] == ["1.60x", "at least 2x", "no"]
    assert reached["Array of 100 sentences, of 100 times one"][2] == "yes"
    assert reached["Attention for 5 % of requests costs throughput"] == ["3.00 %", "at most 5 %", "yes"]
    assert reached["opus: peak memory, of ct2 1x2's"] == ["1.40x", "at most 1.3x", "no"]
    assert reached["opus: p99 of short requests beside eight of 400 tokens, of its idle value"][2] == "yes"
    assert not any("LibreTranslate" in figure for figure in reached)  # it was not there
    assert '<td class="no">no</td>' in as_html(report)


def test_a_scenario_that_got_slower_is_flagged():
    old = make_report() | {"scenarios": make_scenarios()}
    new = make_report() | {"scenarios": make_scenarios(ours=0.6)}
    slower = {one["what"] for one in compare(old, new) if one["slower"]}
    assert slower == {"scenario mix", "scenario chat"}
    assert "SLOWER" in as_markdown(new | {"compared": compare(old, new)})


def test_a_report_is_three_files_of_which_one_can_be_read_again(tmp_path):
    report = make_report() | {"scenarios": make_scenarios()}
    write_report(report, tmp_path / "new" / "report")
    again = json.loads((tmp_path / "new" / "report.json").read_text())
    assert not any(one["slower"] for one in compare(again, report))
    assert as_markdown(again).splitlines()[0] == (tmp_path / "new" / "report.md").read_text().splitlines()[0]
    assert (tmp_path / "new" / "report.html").read_text().startswith("<!doctype html>")


def test_markdown_has_a_row_for_each_point():
    text = as_markdown(make_report())
    assert sum(line.startswith("| one sentence | 1 |") for line in text.splitlines()) == 9


def test_a_plot_is_well_formed_and_draws_what_it_is_given():
    plot = line_plot(
        "a & b", "x", "y", [Line("<l>", [(1, 2), (10, 3)], [(1, 1, 3), (10, 2, 4)])], log_x=True, log_y=True
    )
    root = ElementTree.fromstring(plot)
    texts = [element.text for element in root.iter("text")]
    assert "a & b" in texts and "<l>" in texts
    assert len(list(root.iter("circle"))) == 2
    assert ElementTree.fromstring(line_plot("empty", "x", "y", [])) is not None


def test_bars_are_as_long_as_their_numbers():
    root = ElementTree.fromstring(bar_plot("<rates>", "per second", [("ours", 40.0, 0), ("a & b", 10.0, 1)]))
    widths = [float(element.get("width")) for element in root.iter("rect")]
    assert widths[0] == pytest.approx(4 * widths[1], abs=0.2)
    assert {"<rates>", "ours", "a & b", "40", "10"} <= {element.text for element in root.iter("text")}
    assert ElementTree.fromstring(bar_plot("empty", "", [])) is not None
