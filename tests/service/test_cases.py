"""Every case of tests/data/cases.jsonl, and documents made by chance, on the running server with the bundled model."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.service.text.markup_documents import Maker, Outline

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/cases.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.fixture(scope="module")
def server(bundled_server):
    return bundled_server


def translate(server, text, format="text", **body):
    body = {"text": text, "format": format, "source": "en", "target": "fr", "return": ["segments"]} | body
    return server.get("/v1/translate", body)


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
            case "wellformed":
                assert Outline(text).faults == [], text
            case "tags_same":
                assert Counter(Outline(text).tags) == Counter(Outline(source).tags), text
            case "attr_same":
                assert sorted(Outline(text).attributes) == sorted(Outline(source).attributes), text
            case "attrs_translated":
                for name in value:
                    before, after = Outline(source, [name]).translations, Outline(text, [name]).translations
                    assert before != after and all(after), text
            case "one_sentence":
                assert len(answer["segments"]) == 1
            case _:
                raise AssertionError(f"nothing checks {name}")


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(server, case):
    must = dict(case["must"])
    statuses = must.pop("status", 200)
    # One case is meant to be sent as the JSON escape of a lone surrogate, which is what json.dumps makes of it.
    text = "\ud800" if case["id"] == "lone-surrogate" else case["text"]
    status, answer = translate(server, text, case["format"])
    assert status in (statuses if isinstance(statuses, list) else [statuses])
    if status == 200:
        check(must, text, answer["translations"][0], server)


def test_tags_go_where_their_words_go(server):
    documents = {
        "<p>The <b>red</b> car is <a href='/x'>very fast</a>.</p>": {"b": "rouge", "a": "très rapide"},
        "<p>I have a <i>white</i> house.</p>": {"i": "blanche"},
        "<h1>The old <em>man</em> drinks cold <b>water</b>.</h1>": {"em": "homme", "b": "eau"},
    }
    _, answer = translate(server, list(documents), "html")
    for item, tags in zip(answer["translations"], documents.values(), strict=True):
        for tag, words in tags.items():
            assert words in re.search(rf"<{tag}[^>]*>(.*?)</{tag}>", item["text"])[1], item["text"]


def test_a_tag_does_not_go_to_another_word_if_its_own_is_lost(server):
    # The model says "Hello !" of the whole.
    _, answer = translate(server, "<p>Hello <b>world</b>!</p>", "html")
    (item,) = answer["translations"]
    assert re.search(r"<b>(.*?)</b>", item["text"])[1] == "monde"
    assert "parted" in [warning["code"] for warning in item["warnings"]]


def test_marks_of_emphasis_go_where_their_words_go_as_tags_do(server):
    texts = {
        "The **big** dog barks at the cat.": "<p>The <b>big</b> dog barks at the cat.</p>",
        "The _old_ man drinks **cold water**.": "<p>The <i>old</i> man drinks <b>cold water</b>.</p>",
        "I have a *white* house.": "<p>I have a <em>white</em> house.</p>",
        "*not*": "<p><em>not</em></p>",
    }
    signs = {"<b>": "**", "</b>": "**", "<i>": "_", "</i>": "_", "<em>": "*", "</em>": "*", "<p>": "", "</p>": ""}
    _, plain = translate(server, list(texts))
    _, marked = translate(server, list(texts.values()), "html")
    for ours, theirs in zip(plain["translations"], marked["translations"], strict=True):
        expected = re.sub(r"</?\w+>", lambda match: signs[match[0]], theirs["text"])
        assert ours["text"] == expected
    _, answer = translate(server, "Do _not_ open the ***old* door**!", decoding={"beam_size": 4, "num_hypotheses": 4})
    for text in [answer["translations"][0]["text"], *answer["translations"][0].get("alternatives", [])]:
        assert (text.count("_"), text.count("*")) == (2, 6), text


def test_documents_made_by_chance_keep_their_tags(server):
    documents = [Maker(seed).document() for seed in range(1000, 1012)]
    status, answer = translate(server, documents, "html", decoding={"beam_size": 1})
    assert status == 200, answer
    for document, item in zip(documents, answer["translations"], strict=True):
        before, after = Outline(document), Outline(item["text"])
        assert after.faults == [], (document, item["text"])
        assert Counter(after.tags) == Counter(before.tags), (document, item["text"])
        assert sorted(after.paths) == sorted(before.paths), (document, item["text"])
        assert sorted(after.attributes) == sorted(before.attributes), (document, item["text"])
        assert Counter(after.others) == Counter(before.others), (document, item["text"])
