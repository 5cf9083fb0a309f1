"""Every case of tests/data/cases.jsonl in plain text, against the running server with the bundled model."""

import json
import re
from pathlib import Path

import pytest

from tests.service.test_server import Server

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/cases.jsonl").read_text(encoding="utf-8").splitlines()
]
TEXT_CASES = [case for case in CASES if case["format"] == "text"]


@pytest.fixture(scope="module")
def server():
    server = Server()
    server.wait_until_ready()
    yield server
    server.stop()


def translate(server, text):
    return server.get("/v1/translate", {"text": text, "source": "en", "target": "fr", "return": ["segments"]})


def space_of_lines(text):
    """The white space before, between and after the lines; what is inside a line is the model's."""
    lines = text.splitlines(keepends=True)
    return [(re.match(r"\s*", line)[0], re.search(r"\s*\Z", line)[0]) for line in lines]


def check(must, source, answer, server):
    text = answer["text"]
    for name, value in must.items():
        match name:
            case "keep":
                counts = {part: (text.count(part), source.count(part)) for part in value}
                assert all(found == wanted for found, wanted in counts.values()), (counts, text)
            case "text_after":
                assert re.search(r"\w", text.partition(value)[2]), text
            case "equals_input":
                assert text == source
            case "not_equal_input":
                assert text != source
            case "same_as":
                assert text == translate(server, value)[1]["translations"][0]["text"]
            case "gaps":
                assert space_of_lines(text) == space_of_lines(source)
            case "lines":
                assert len(text.splitlines()) == len(source.splitlines())
            case "line_prefixes":
                assert all(line.startswith(prefix) for line, prefix in zip(text.splitlines(), value, strict=True))
            case "min_sentences":
                assert len(answer["segments"]) >= value
            case "max_sentences":
                assert len(answer["segments"]) <= value
            case "min_words":
                assert len(re.findall(r"\w+", text)) >= value, text
            case "max_words":
                assert len(re.findall(r"\w+", text)) <= value, text
            case "min_ratio":
                assert len(text) >= value * len(source)
            case "max_ratio":
                assert len(text) <= value * len(source)
            case _:
                raise AssertionError(f"nothing checks {name}")


@pytest.mark.parametrize("case", TEXT_CASES, ids=[case["id"] for case in TEXT_CASES])
def test_case(server, case):
    must = dict(case["must"])
    statuses = must.pop("status", 200)
    # One case is meant to be sent as the JSON escape of a lone surrogate, which is what json.dumps makes of it.
    text = "\ud800" if case["id"] == "lone-surrogate" else case["text"]
    status, answer = translate(server, text)
    assert status in (statuses if isinstance(statuses, list) else [statuses])
    if status == 200:
        check(must, text, answer["translations"][0], server)
