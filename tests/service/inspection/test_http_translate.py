"""`attention` and `return: ["alignment"]` in `/v1/translate`."""

import json

import numpy as np
import pytest

from service.engine import replayer as replayer_module

TEXTS = ["The cat eats an apple. It rains.\n\n", "🙂", "Where is the station?"]


def translate(server, status=200, **body):
    response = server.client.post("/v1/translate", json={"model": "tiny"} | body)
    assert response.status_code == status, response.text
    return response.json()


@pytest.fixture
def replays(monkeypatch):
    """Counts passes through a model beside those of the search."""
    seen = []
    for name in ("replay", "replays_for"):
        real = getattr(replayer_module, name)

        def counted(*arguments, _real=real, **options):
            seen.append(arguments)
            return _real(*arguments, **options)

        monkeypatch.setattr(replayer_module, name, counted)
    return seen


def test_nobody_asks_and_nothing_is_replayed(server, replays):
    plain = translate(server, text=TEXTS)
    assert replays == []
    assert all("attention" not in item and "alignment" not in item for item in plain["translations"])


def test_maps_and_alignment_come_from_one_replay_of_each_segment(server, replays):
    plain = translate(server, text=TEXTS)
    asked = translate(server, text=TEXTS, attention={"kinds": ["cross"], "layers": -1}, **{"return": ["alignment"]})
    assert len(replays) == 3  # two sentences and one; the emoji was never shown to the model
    for before, after in zip(plain["translations"], asked["translations"], strict=True):
        assert json.dumps(before) == json.dumps({name: after[name] for name in before})
    segments = [segment for item in asked["translations"] for segment in item["attention"]["segments"]]
    assert [segment["translated"] for segment in segments] == [True, True, False, True]
    for segment in segments:
        assert all(check["passed"] for check in segment.get("checks", []))


def test_they_are_those_of_their_own_endpoints(float_server):
    text = TEXTS[0]
    asked = translate(
        float_server,
        text=text,
        attention={"kinds": ["cross", "decoder"], "granularity": "word", "heads": "1-2"},
        **{"return": ["alignment"]},
    )
    (item,) = asked["translations"]
    alone = float_server.json("attention", text=text, kinds=["cross", "decoder"], granularity="word", heads="1-2")
    for mine, theirs in zip(item["attention"]["segments"], alone["segments"], strict=True):
        for here, there in zip(mine.pop("maps"), theirs.pop("maps"), strict=True):
            assert np.abs(np.array(here.pop("values")) - np.array(there.pop("values"))).max() < 1e-5
            assert here == there
        assert mine["source_tokens"] == theirs["source_tokens"]
        assert mine["target_words"] == theirs["target_words"]
    aligned = float_server.json("alignment", text=text)
    only = translate(float_server, text=text, **{"return": ["alignment"]})["translations"][0]
    for one in (item["alignment"], only["alignment"]):
        for mine, theirs in zip(one["segments"], aligned["segments"], strict=True):
            assert mine["pharaoh"] == theirs["pharaoh"]
            for link, other in zip(mine["links"], theirs["links"], strict=True):
                assert link | {"score": 0} == other | {"score": 0}
                assert link["score"] == pytest.approx(other["score"], abs=1e-5)


def test_places_of_later_sentences_are_in_the_whole_text(server):
    text = TEXTS[0]
    (item,) = translate(server, text=text, **{"return": ["alignment"]})["translations"]
    for segment in item["alignment"]["segments"]:
        assert text[segment["start"] : segment["end"]] == segment["source"]
        assert item["text"][segment["target_start"] : segment["target_end"]] == segment["target"]
        for word in segment["source_words"]:
            assert text[word["start"] : word["end"]] == word["text"]
        for word in segment["target_words"]:
            assert item["text"][word["start"] : word["end"]] == word["text"]
        for link in segment["links"]:
            assert link["source"] == [segment["source_words"][link["source_word"]][name] for name in ("start", "end")]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"stream": True, "attention": {}}, "stream"),
        ({"stream": True, "return": ["alignment"]}, "stream"),
        ({"attention": {"layers": 9}}, "attention.layers"),
        ({"attention": {"kind": ["cross"]}}, "attention.kind"),
        ({"attention": {"kinds": ["self"]}}, "attention.kinds[0]"),
        ({"attention": {"measure": "scores", "granularity": "word"}}, "attention.granularity"),
    ],
)
def test_what_cannot_be_asked_is_named(float_server, body, field):
    problem = translate(float_server, status=422, text="a", **body)
    assert problem["errors"][0]["field"] == field


def test_too_much_of_the_inside_is_refused_with_both_numbers(float_server):
    text = "The cat eats an apple. " * 400
    problem = translate(float_server, status=413, text=text, attention={})
    assert problem["type"].endswith("inspection-too-large")
    assert problem["needed_tokens"] > problem["limit_tokens"] == 2048
