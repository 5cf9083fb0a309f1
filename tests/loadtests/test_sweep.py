import random
import xml.etree.ElementTree as ElementTree

import pytest

from loadtests.plots import Line, line_plot
from loadtests.report import as_html, as_markdown
from loadtests.sweep import compare, fit_exponent, fits


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
