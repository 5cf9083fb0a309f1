"""A long list of texts: each is judged when it has ended, and has the translation that it has alone."""

import asyncio
import random
import time
from dataclasses import replace

import pytest

from model.decoding import DecodingOptions, Hypothesis
from service.engine.errors import DeadlineExceeded, SequenceFailed
from service.engine.request import RequestDoneEvent, RequestResult, SequenceDoneEvent, SequenceResult, SequenceTimings
from service.engine.work import current_work, piece_of_work
from service.translator import Job, SegmentSource, Timings, Translator
from tests.service.fake_tokenizer import EOS_ID, FIRST_ID, FakeTokenizer
from tests.service.fakes import FAKE_MODEL, FakeEngine

GREEDY = DecodingOptions()
WAIT_SECONDS = 30


class ListEngine(FakeEngine):
    """Ends sequences in another order than they came, and writes what has to be tried again for every fourth one."""

    def __init__(self, *, stops_after=None):
        super().__init__()
        self.open = set()
        self.closed = []
        self.stops_after = stops_after
        """As many sequences of the first request end; then it hangs until `go_on`."""
        self.go_on = asyncio.Event()
        self.hangs = asyncio.Event()

    async def stream(self, request):
        self.requests.append(request)
        is_first = len(self.requests) == 1
        self.open.add(request.request_id)
        try:
            order = list(range(len(request.sequences)))
            random.Random(len(order)).shuffle(order)
            results = {}
            for count, index in enumerate(order):
                if is_first and count == self.stops_after:
                    self.hangs.set()
                    await self.go_on.wait()
                await asyncio.sleep(0)
                results[index] = self._result(request.sequences[index])
                yield SequenceDoneEvent(index, results[index])
            yield RequestDoneEvent(RequestResult(request.request_id, tuple(results[i] for i in range(len(order)))))
        finally:
            self.open.discard(request.request_id)
            self.closed.append(request.request_id)

    def _result(self, sequence):
        ids, options = sequence.source_ids, sequence.options
        if ids in self.failures:
            return super()._result(sequence)
        source = "".join(chr(each - FIRST_ID) for each in ids[:-1])
        drawn = f" {options.seed}" if options.temperature else ""
        written = source.upper()[:-1] + drawn + source[-1:]
        if "again" in source and options.beam_size == 1:
            written = "la " * 20
        if "hard" in source:  # whatever is tried
            written = "NON " * 30
        tokens = (*(FIRST_ID + ord(char) for char in written), EOS_ID)
        timings = SequenceTimings(0.001, 0.002, len(tokens) / 1000)
        hypothesis = Hypothesis(tokens, "stop", (-0.5,) * len(tokens), -0.5 * len(tokens), -0.5)
        return SequenceResult((hypothesis,), "stop", timings, len(ids), len(tokens))


NAMES = "cat dog cow hen fox owl bee ant bat elk emu eel yak pig ram ewe jay koi asp cod".split()
TEXTS = [
    *(f"The old {name} sleeps." for name in NAMES),
    *(f"The {name} is here again, my friend." for name in NAMES[::4]),
    *(f"A {name} has 12 of them, see https://x.org/{name} now." for name in NAMES[::5]),
    "The old cat sleeps. The old dog sleeps.\n- A hen!",
    "The hard one of all these words is never good.",
    "",
    "🙂 12:30",
    "The old cat sleeps.",
    "The cat is here again, my friend.",
]


def run(scenario, engine):
    async def main():
        await engine.start()
        translator = Translator(engine, {"en-fr": FakeTokenizer()}, max_segment_tokens=128)
        return await asyncio.wait_for(scenario(translator), WAIT_SECONDS)

    return asyncio.run(main())


def translate(texts, engine=None, **job):
    engine = engine or ListEngine()
    return run(lambda translator: translator.translate(Job(tuple(texts), FAKE_MODEL, **job)), engine)


@pytest.mark.parametrize(
    "options",
    [
        GREEDY,
        DecodingOptions(beam_size=3),
        DecodingOptions(temperature=1.0, seed=7),
        DecodingOptions(max_target_tokens=30),
    ],
    ids=["greedy", "beam", "drawn", "short"],
)
def test_each_text_of_a_list_has_the_translation_that_it_has_alone(options):
    engine = ListEngine()
    together = translate(TEXTS, engine, options=options)
    assert len(engine.requests) > 1, "nothing was tried again"
    alone = [translate([text], options=options) for text in TEXTS]
    for text, own in zip(together.texts, alone, strict=True):
        assert text == own.texts[0]
    assert {code for text in together.texts for _, code in text.warnings}
    assert together.source_tokens == sum(each.source_tokens for each in alone)
    assert together.target_tokens == sum(each.target_tokens for each in alone)


def test_the_same_sentence_is_asked_for_once_and_drawn_anew_without_a_seed():
    engine = ListEngine()
    translate(TEXTS, engine)
    asked = [sequence for request in engine.requests for sequence in request.sequences]
    assert len(asked) == len(set(asked))
    drawn = ListEngine()
    translate(TEXTS, drawn, options=DecodingOptions(temperature=1.0))
    cat = FakeTokenizer().encode("The old cat sleeps.", "en", add_eos=True).ids
    assert sum(sequence.source_ids == cat for request in drawn.requests for sequence in request.sequences) == 3


def test_what_is_tried_again_does_not_wait_for_the_others():
    engine = ListEngine(stops_after=len(NAMES))

    async def scenario(translator):
        job = asyncio.ensure_future(translator.translate(Job(tuple(TEXTS), FAKE_MODEL)))
        await engine.hangs.wait()
        while len(engine.requests) < 2:
            await asyncio.sleep(0.001)
        assert len(engine.open) > 0 and engine.requests[0].request_id in engine.open
        engine.go_on.set()
        return await job

    translation = run(scenario, engine)
    assert translation.texts == translate(TEXTS).texts
    assert not engine.open


def test_nobody_asks_for_the_tokens_of_a_list():
    engine = ListEngine()
    translate(TEXTS, engine)
    assert not any(request.tells_tokens for request in engine.requests)


def test_segments_that_somebody_else_has_found_are_the_same():
    engine, sources = ListEngine(), [SegmentSource(text) for text in TEXTS if text.strip() and "\n" not in text]
    done, timings = run(lambda each: each.translate_segments(sources, Job((), FAKE_MODEL)), engine)
    alone = [run(lambda each, s=s: each.translate_segments([s], Job((), FAKE_MODEL)), ListEngine())[0] for s in sources]
    assert done == [own for (own,) in alone]
    assert timings.decode_seconds > 0


def test_times_of_rounds_are_added_up_and_those_of_a_round_are_side_by_side():
    def longest(request):
        return max(len(ListEngine()._result(sequence).hypotheses[0].tokens) for sequence in request.sequences) / 1000

    engine = ListEngine()
    texts = [*TEXTS[: len(NAMES)], "The cat is here again, my friend."]
    timings = translate(texts, engine).timings
    first, second = engine.requests
    assert timings == Timings(0.002, 0.004, pytest.approx(longest(first) + longest(second)))


def test_a_sequence_that_fails_in_the_midst_ends_all():
    ids = FakeTokenizer().encode(TEXTS[5], "en", add_eos=True).ids
    engine = ListEngine()
    engine.failures = {ids: "NaN"}
    with pytest.raises(SequenceFailed, match="NaN") as caught:
        translate(TEXTS, engine)
    assert engine.requests[0].sequences[caught.value.sequence_index].source_ids == ids
    assert not engine.open and len(engine.closed) == len(engine.requests)


def test_an_error_of_what_is_tried_again_ends_all():
    class Broken(ListEngine):
        async def stream(self, request):
            if self.requests:
                self.requests.append(request)
                raise DeadlineExceeded(request.request_id)
            async for event in super().stream(request):
                yield event

    engine = Broken(stops_after=len(NAMES))
    with pytest.raises(DeadlineExceeded):
        translate(TEXTS, engine)
    assert not engine.open


def test_a_list_that_nobody_waits_for_any_more_is_given_up_in_the_midst():
    engine = ListEngine(stops_after=len(NAMES))

    async def scenario(translator):
        job = asyncio.ensure_future(translator.translate(Job(tuple(TEXTS), FAKE_MODEL)))
        await engine.hangs.wait()
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        # At once, and not only when the loop ends, which cancels everything.
        assert not engine.open and engine.requests[0].request_id in engine.closed

    run(scenario, engine)


def test_a_deadline_that_passes_in_the_midst_ends_all(monkeypatch):
    monkeypatch.setattr("service.translator._DEADLINE_GRACE_SECONDS", 0.0)
    engine = ListEngine(stops_after=3)
    with pytest.raises(DeadlineExceeded):
        translate(TEXTS, engine, deadline=time.monotonic() + 0.5)
    assert len(engine.requests) >= 1 and not engine.open


def test_judging_ends_with_the_deadline(monkeypatch):
    monkeypatch.setattr("service.translator._DEADLINE_GRACE_SECONDS", 100.0)  # the engine is not asked for it
    engine = ListEngine(stops_after=5)

    async def scenario(translator):
        job = Job(tuple(TEXTS), FAKE_MODEL, deadline=time.monotonic() + 0.3)
        running = asyncio.ensure_future(translator.translate(job))
        await engine.hangs.wait()
        await asyncio.sleep(0.4)
        engine.go_on.set()
        with pytest.raises(DeadlineExceeded):
            await running
        assert not engine.open

    run(scenario, engine)


def begun_early(engine, *, is_early, stops_at=20, size=60, **work_facts):
    """Translates a list whose texts are not taken apart any further, from one on, until the engine has been asked."""
    texts = tuple(f"The {name} number {index} sleeps near the river." for index, name in enumerate((NAMES * 9)[:size]))
    was_asked = []

    async def scenario(translator):
        segment = translator._segment

        def segment_slowly(text, *args):
            if text == texts[stops_at]:
                until = time.monotonic() + (5.0 if is_early else 0.3)
                while not engine.requests and time.monotonic() < until:
                    time.sleep(0.001)
                was_asked.append(len(engine.requests[0].sequences) if engine.requests else 0)
            return segment(text, *args)

        translator._segment = segment_slowly
        with piece_of_work():
            for name, value in work_facts.items():
                setattr(current_work.get(), name, value)
            return await translator.translate(Job(texts, FAKE_MODEL))

    translation = run(scenario, engine)
    assert translation.texts == translate(texts).texts
    assert sum(len(request.sequences) for request in engine.requests) == size
    return was_asked[0]


def test_the_first_are_translated_while_others_are_taken_apart():
    engine = ListEngine()
    assert 16 <= begun_early(engine, is_early=True) <= 20  # as soon as the event loop, which works beside, has a look
    assert len(engine.requests) <= 3


@pytest.mark.parametrize(
    ("facts", "stats"),
    [
        ({"must_be_whole": True}, {}),
        ({"is_open": False}, {}),
        ({}, {"waiting_tokens": 1}),
        ({}, {"promised_tokens": 1}),
        ({}, {"max_waiting_tokens": 2000}),
        ({}, {"kv_cache_total_bytes": 1 << 20}),
    ],
    ids=str,
)
def test_where_anything_might_be_refused_all_is_submitted_at_once(facts, stats):
    engine = ListEngine()
    engine.current_stats = replace(engine.current_stats, **stats)
    assert begun_early(engine, is_early=False, **facts) == 0
    assert len(engine.requests) == 1


def test_texts_that_belong_to_no_piece_of_work_are_submitted_at_once():
    engine = ListEngine()
    translate([f"The {name} sleeps near the river at number {index}." for index, name in enumerate(NAMES * 4)], engine)
    assert len(engine.requests) == 1


def test_an_error_while_others_are_taken_apart_ends_what_has_begun():
    engine = ListEngine(stops_after=1)
    texts = [f"The {name} number {index} sleeps near the river." for index, name in enumerate(NAMES * 4)]

    async def scenario(translator):
        segment = translator._segment

        def fail_late(text, *args):
            if text == texts[40]:
                until = time.monotonic() + 5.0
                while not engine.requests and time.monotonic() < until:
                    time.sleep(0.001)
                raise DeadlineExceeded("late")
            return segment(text, *args)

        translator._segment = fail_late
        with piece_of_work():
            await translator.translate(Job(tuple(texts), FAKE_MODEL))

    with pytest.raises(DeadlineExceeded, match="deadline"):
        run(scenario, engine)
    assert engine.requests and not engine.open


def test_few_texts_are_judged_together():
    engine = ListEngine()
    translate(TEXTS[:8], engine)
    assert [request.tells_tokens for request in engine.requests] == [True]
