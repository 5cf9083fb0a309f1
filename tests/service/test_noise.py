"""Arbitrary and noisy text against the running server with the bundled model."""

import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer import Client, Delta, SegmentDone
from loadtests.quality.noise import is_loop, noisy_texts
from service.text.forms import NEVER_WRITTEN
from service.text.kept import kept_spans, number_runs

KEPT = (
    "https://x.org/a?b=1",
    "{name}",
    "%1$s",
    "a_b",
    "`x y`",
    "@me",
    "/tmp/a.txt",
    "🎉",
    "こん",
    "42",
    "3.5 kg",
    "|",
    "\ue003",
)

# Any characters, words that a model knows, what must be kept, and white space of all kinds.
text = st.lists(
    st.text(max_size=8)
    | st.sampled_from(
        ["the", "old", "dog", "is", "HERE", "now.", "He", "said", "no", "?", "\n", "\r\n", "\t", "  ", "\u200d"]
    )
    | st.sampled_from(KEPT),
    max_size=12,
).map(" ".join)


def check(source, item, seconds):
    result = item["text"]
    result.encode()  # no half of a surrogate pair
    gaps, place = [], 0
    for segment in item["segments"]:
        gaps.append(source[place : segment["start"]])
        place = segment["end"]
        assert segment["source"] == source[segment["start"] : segment["end"]]
    parts = [
        part for pair in zip(gaps, [segment["text"] for segment in item["segments"]], strict=True) for part in pair
    ]
    assert result == "".join(parts) + source[place:]
    for segment in item["segments"]:
        for span in kept_spans(segment["source"]):
            assert segment["text"].count(span.text) == segment["source"].count(span.text), (span, segment)
        for number in number_runs(segment["source"]):
            assert segment["text"].count(number) >= 1, segment
    assert seconds < 400  # a hundred times what it takes


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(text, min_size=1, max_size=6))
def test_any_text_keeps_its_gaps_and_spans(bundled_server, texts):
    started = time.monotonic()
    body = {"text": texts, "target": "fr", "return": ["segments"], "decoding": {"beam_size": 2}}
    status, answer = bundled_server.get("/v1/translate", body)
    assert status == 200, answer
    for source, item in zip(texts, answer["translations"], strict=True):
        check(source, item, time.monotonic() - started)


def test_noise_makes_no_loops_and_nothing_too_long(bundled_server):
    texts = noisy_texts(38)  # two of each kind; loadtests/quality/noise.py takes a thousand
    body = {"text": texts, "target": "fr", "return": ["segments"], "decoding": {"beam_size": 1}}
    status, answer = bundled_server.get("/v1/translate", body)
    assert status == 200, answer
    for source, item in zip(texts, answer["translations"], strict=True):
        assert not is_loop(source, item["text"]), (source, item["text"])
        assert len(item["text"]) <= 3 * len(source), (source, item["text"])
        check(source, item, 0)


def test_what_a_stream_has_told_stands(bundled_server):
    texts = noisy_texts(76)[38:]
    told, done = {}, {}
    with Client(bundled_server.address, timeout_seconds=600) as client:
        for event in client.stream(texts, target="fr"):
            if isinstance(event, Delta):
                place = event.translation, event.segment
                told[place] = told.get(place, "") + event.text
                assert event.text_so_far == told[place]
            if isinstance(event, SegmentDone):
                done[event.translation, event.segment] = event.text
    assert told == done
    assert len(done) > 30


def test_no_stream_tells_characters_that_no_text_has(bundled_server):
    texts = ["Dear friend, the cat sleeps well.", "Best,", "See you with the old dog!"] * 4
    told = []
    with Client(bundled_server.address, timeout_seconds=600) as client:
        for seed, temperature in enumerate((1.0, 2.0, 5.0)):
            options = {"temperature": temperature, "seed": seed, "max_target_tokens": 40}
            told += list(client.stream(texts, target="fr", decoding=options))
    texts = [event.text for event in told if isinstance(event, Delta | SegmentDone)]
    assert len(texts) > 100
    assert not any(NEVER_WRITTEN.search(text) for text in texts)


def test_noise_is_the_same_in_every_run():
    assert noisy_texts(40) == noisy_texts(100)[:40]


def test_loops_are_judged_by_what_the_source_repeats():
    assert is_loop("the salad", "salade salade salade salade")
    assert not is_loop("no no no no", "non non non non")
    assert is_loop("the xylophone", "le xyloxyloxyloxyloxyloxyloxyloxyloxyloxylo")
