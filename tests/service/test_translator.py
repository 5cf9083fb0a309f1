import asyncio
import time
from dataclasses import replace

import pytest

from model.decoding import DecodingOptions, Hypothesis
from model.words import TokenText
from service.engine.errors import DeadlineExceeded, EngineStopping, QueueFull, SequenceFailed, UnknownModel
from service.engine.inspection import SegmentAlignment, WordLink
from service.engine.request import SequenceResult
from service.routing import UnknownLanguagePair
from service.translator import (
    Job,
    SegmentDone,
    TextDelta,
    Translation,
    Translator,
)
from tests.service.fake_tokenizer import EOS_ID, FIRST_ID, FakeTokenizer, upper
from tests.service.fakes import FAKE_MODEL, FakeEngine


class CapitalEngine(FakeEngine):
    translate = staticmethod(upper)


class InOrder:
    """An aligner for `CapitalEngine`: character for character."""

    async def align(self, model, pairs, deadline=None):
        return [self._align(pair) for pair in pairs]

    def _align(self, pair):
        text = FakeTokenizer().decode(pair.target_ids)
        size = len(text)
        spans = (*((place, place + 1) for place in range(size)), (size, size))
        target = TokenText(text, (*text, "</s>"), spans, (*(False for _ in text), True))
        links = tuple(WordLink(place, place, 1.0) for place in range(size))
        return SegmentAlignment(pair.source, target, (), (), (), (), (), links, {})


def run(scenario, engine=None, max_segment_tokens=128, aligner=None):
    async def main():
        used = engine or CapitalEngine()
        await used.start()
        tokenizers = {info.name: FakeTokenizer() for info in used.model_infos}
        translator = Translator(used, tokenizers, max_segment_tokens=max_segment_tokens, aligner=aligner)
        return await scenario(translator)

    return asyncio.run(main())


def translate(*texts, engine=None, max_segment_tokens=128, aligner=None, **job):
    async def scenario(translator):
        return await translator.translate(Job(texts, FAKE_MODEL, **job))

    return run(scenario, engine, max_segment_tokens, aligner)


def test_texts_come_back_in_order_with_their_gaps():
    translation = translate("One. Two.\r\n\r\n - three 🙂\n", "", " \t", "🙂", "four")
    assert [text.text for text in translation.texts] == ["ONE. TWO.\r\n\r\n - THREE 🙂\n", "", " \t", "🙂", "FOUR"]


def test_all_segments_of_all_texts_are_one_request_of_the_engine():
    engine = CapitalEngine()
    translate("One. Two.", "Three.\nFour.", engine=engine)
    (request,) = engine.requests
    assert len(request.sequences) == 4
    assert all(sequence.source_ids[-1] == EOS_ID for sequence in request.sequences)


def test_the_same_segment_is_translated_once():
    engine = CapitalEngine()
    translation = translate("Yes.\nNo.\nYes.\nYes.", "Yes.", engine=engine)
    assert [text.text for text in translation.texts] == ["YES.\nNO.\nYES.\nYES.", "YES."]
    assert len(engine.requests[0].sequences) == 2
    assert translation.target_tokens == 4 * 5 + 4  # of each, whether it was shared or not
    drawn = DecodingOptions(temperature=1.0)
    translate("Yes.\nYes.", engine=engine, options=drawn)
    translate("Yes.\nYes.", engine=engine, options=replace(drawn, seed=1))
    assert [len(request.sequences) for request in engine.requests[1:]] == [2, 1]


def test_a_stream_tells_of_each_segment_that_shares_a_translation():
    async def scenario(translator):
        return [event async for event in translator.stream(Job(("Yes. No. Yes.",), FAKE_MODEL))]

    events = run(scenario)
    assert sorted(
        (event.segment_index, event.translation.text) for event in events if isinstance(event, SegmentDone)
    ) == [
        (0, "YES."),
        (1, "NO."),
        (2, "YES."),
    ]
    assert {event.segment_index for event in events if isinstance(event, TextDelta)} == {0, 1, 2}


def test_a_deadline_that_passes_while_the_text_is_split_ends_it():
    engine = CapitalEngine()
    with pytest.raises(DeadlineExceeded):
        translate("One. Two.", engine=engine, deadline=time.monotonic() - 1)
    assert engine.requests == []


def test_without_anything_to_translate_the_engine_is_not_asked():
    engine = CapitalEngine()
    translation = translate("", "  ", "12:30", "🙂", engine=engine)
    assert engine.requests == []
    assert (translation.source_tokens, translation.target_tokens) == (0, 0)


def test_options_deadline_and_scores_reach_the_engine():
    engine = CapitalEngine()
    deadline = time.monotonic() + 5
    options = DecodingOptions(beam_size=3)
    translate("One.", engine=engine, options=options, deadline=deadline, with_log_probs=True)
    (request,) = engine.requests
    # All hypotheses of the beam are looked at, until one is right.
    assert request.sequences[0].options == replace(options, num_hypotheses=3)
    assert (request.deadline, request.with_log_probs, request.model) == (deadline, True, "en-fr")


def test_tokens_and_times_are_counted():
    translation = translate("One.", "Three.")
    assert translation.source_tokens == translation.target_tokens == 5 + 7
    assert translation.timings.decode_seconds == 0.003


def test_long_texts_are_planned_off_the_event_loop_with_the_same_result():
    text = "A sentence of some length. " * 200
    assert translate(text).texts[0].text == text.upper()


def test_a_sentence_over_the_limit_is_windowed():
    text = "one two three, four five six seven"
    (done,) = translate(text, max_segment_tokens=20).texts
    assert done.text == text.upper()
    assert done.document.windowed
    assert len(done.segments) == 2


def test_the_model_s_own_limit_counts_if_it_is_lower():
    engine = CapitalEngine(model_infos=(replace(FAKE_MODEL, max_source_tokens=10),))

    async def scenario(translator):
        return await translator.translate(Job(("one two three four",), translator.find_model()))

    run(scenario, engine)
    assert max(len(sequence.source_ids) for sequence in engine.requests[0].sequences) <= 10


def test_an_empty_translation_leaves_the_source():
    class Silent(FakeEngine):
        translate = staticmethod(lambda source_ids: (EOS_ID,))

    assert translate("Hello there.\n", engine=Silent()).texts[0].text == "Hello there.\n"


def test_alternatives_are_ranked_and_the_last_one_stands_in():
    class Ranked(FakeEngine):
        def _result(self, sequence):
            result = super()._result(sequence)
            count = 3 if len(sequence.source_ids) == 2 else 2  # "a" and the end
            hypotheses = [
                Hypothesis((FIRST_ID + ord(str(rank)), EOS_ID), "stop", (-1.0, -1.0), -2.0, -1.0)
                for rank in range(count)
            ]
            return replace(result, hypotheses=tuple(hypotheses))

    (text,) = translate("a\nbb", engine=Ranked(), options=DecodingOptions(beam_size=3, num_hypotheses=3)).texts
    assert text.num_candidates == 3
    assert [text.nth_text(rank) for rank in range(3)] == ["0\n0", "1\n1", "2\n1"]
    assert text.score == -1.0


def test_a_text_without_letters_has_no_score():
    assert translate("🙂").texts[0].score is None


def test_truncation_is_told():
    class Cut(FakeEngine):
        def _result(self, sequence):
            result = super()._result(sequence)
            hypothesis = Hypothesis(result.hypotheses[0].tokens[:2], "length")
            return SequenceResult((hypothesis,), "length", result.timings, result.num_source_tokens, 2)

    (text,) = translate("Hello there.", engine=Cut()).texts
    assert text.truncated
    assert text.text == "He"


def test_a_failed_sequence_fails_the_job():
    source_ids = FakeTokenizer().encode("Two.", "en", add_eos=True).ids
    with pytest.raises(SequenceFailed, match="NaN"):
        translate("One. Two.", engine=CapitalEngine(failures={source_ids: "NaN"}))


def test_refusals_of_the_engine_pass():
    with pytest.raises(QueueFull):
        translate("One.", engine=CapitalEngine(error=QueueFull(1, 1, 1.0)))


def test_an_engine_that_hangs_is_left_at_the_deadline(monkeypatch):
    monkeypatch.setattr("service.translator._DEADLINE_GRACE_SECONDS", 0.0)
    engine = CapitalEngine(hold=asyncio.Event())
    with pytest.raises(DeadlineExceeded):
        translate("One.", engine=engine, deadline=time.monotonic() + 1)
    assert engine.aborted == [engine.requests[0].request_id]


def test_a_cancelled_translation_frees_the_engine():
    engine = CapitalEngine(hold=asyncio.Event())

    async def scenario(translator):
        task = asyncio.create_task(translator.translate(Job(("One.",), FAKE_MODEL)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario, engine)
    assert engine.aborted == [engine.requests[0].request_id]


def stream(*texts, **job):
    async def scenario(translator):
        return [event async for event in translator.stream(Job(texts, FAKE_MODEL, **job))]

    return run(scenario)


def test_a_stream_s_parts_make_its_segments_and_its_end_is_the_translation():
    events = stream("One. Two 🙂.", "three")
    written = {}
    for event in events:
        if isinstance(event, TextDelta):
            written[event.text_index, event.segment_index] = (
                written.get((event.text_index, event.segment_index), "") + event.text
            )
    done = {
        (event.text_index, event.segment_index): event.translation.text
        for event in events
        if isinstance(event, SegmentDone)
    }
    assert written == done == {(0, 0): "ONE.", (0, 1): "TWO 🙂.", (1, 0): "THREE"}
    assert isinstance(events[-1], Translation)
    assert [text.text for text in events[-1].texts] == ["ONE. TWO 🙂.", "THREE"]


def test_a_stream_of_nothing_to_translate_has_one_event():
    assert [type(event) for event in stream(" ", "🙂")] == [Translation]


def test_a_stream_that_is_left_frees_the_engine():
    engine = CapitalEngine(hold=asyncio.Event())

    async def scenario(translator):
        events = translator.stream(Job(("One.",), FAKE_MODEL))
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    run(scenario, engine)
    assert engine.aborted == [engine.requests[0].request_id]


EMPHASISED = "* The **big** dog, _not_ a ***cat*** at 5.\n**Do it. Now.** See `a*b*` and a_b_c."
EMPHASISED_CAPITALS = "* THE **BIG** DOG, _NOT_ A ***CAT*** AT 5.\n**DO IT. NOW.** SEE `a*b*` AND a_b_c."


def test_marks_of_emphasis_are_shown_to_no_model_and_stand_around_their_words():
    engine = CapitalEngine()
    translation = translate(EMPHASISED, "The big dog, not a cat at 5.", engine=engine, aligner=InOrder())
    assert translation.texts[0].text == EMPHASISED_CAPITALS
    shown = [FakeTokenizer().decode(sequence.source_ids) for sequence in engine.requests[0].sequences]
    assert shown[:2] == ["The big dog, not a cat at 5.", "Do it."]
    assert translation.texts[1].text == "THE BIG DOG, NOT A CAT AT 5."  # what it shares has none
    for done in translation.texts[0].segments[:2]:
        assert "".join(part.text for part in done.parts) == done.text
        assert [(part.start, part.end) for part in done.parts] == [(0, len(done.segment.text))]
        for part in done.parts:
            assert "".join(piece.text for piece in part.pieces) == part.text
            places = zip(part.encoding.pieces, part.encoding.source_spans, strict=True)
            assert all(done.segment.text[slice(*span)] == char for char, span in places if char != "</s>")


def test_a_stream_tells_of_marks_of_emphasis_when_they_have_their_places():
    async def scenario(translator):
        return [event async for event in translator.stream(Job(("The big dog. " + EMPHASISED,), FAKE_MODEL))]

    events = run(scenario, aligner=InOrder())
    done = {event.segment_index: event.translation.text for event in events if isinstance(event, SegmentDone)}
    told = dict.fromkeys(done, "")
    for event in events:
        if isinstance(event, TextDelta):
            told[event.segment_index] += event.text
            assert told[event.segment_index] == event.text_so_far
    assert told == done
    assert events[-1].texts[0].text == "THE BIG DOG. " + EMPHASISED_CAPITALS


MODELS = (
    FAKE_MODEL,
    replace(FAKE_MODEL, name="en-de", target_language="de"),
    replace(FAKE_MODEL, name="en-fr-big"),
    replace(FAKE_MODEL, name="fr-CA-en", source_language="fr-CA", target_language="en"),
)


def find(models=MODELS, **wanted):
    async def scenario(translator):
        return translator.find_model(**wanted).name

    return run(scenario, FakeEngine(model_infos=models))


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ({"model": "en-fr"}, "en-fr"),
        ({"target": "de"}, "en-de"),
        ({"source": "en-GB", "target": "DE"}, "en-de"),
        ({"source": "fr-ca"}, "fr-CA-en"),
        ({"source": "fr_CA"}, "fr-CA-en"),
        ({"model": "en-fr-big", "source": "en", "target": "fr"}, "en-fr-big"),
    ],
)
def test_the_model_meant_is_found(wanted, name):
    assert find(**wanted) == name


def test_the_only_model_needs_no_name():
    assert find(models=(FAKE_MODEL,)) == "en-fr"


@pytest.mark.parametrize(
    ("wanted", "field", "available"),
    [
        ({"source": "es"}, "source", ("en", "fr-CA")),
        ({"source": "en", "target": "es"}, "target", ("de", "fr")),
        ({"model": "en-de", "target": "fr"}, "target", ("de",)),
        ({"source": "en", "target": "fr"}, "model", ("en-fr", "en-fr-big")),
        ({"source": ""}, "source", ("en", "fr-CA")),
    ],
)
def test_what_fits_no_model_or_several_is_refused_with_what_there_is(wanted, field, available):
    with pytest.raises(UnknownLanguagePair) as caught:
        find(**wanted)
    assert (caught.value.field, caught.value.available) == (field, available)


def test_an_unknown_model_is_refused_with_those_there_are():
    with pytest.raises(UnknownModel, match="en-fr-big"):
        find(model="es-en")


def test_no_model_is_found_before_the_engine_has_started():
    translator = Translator(FakeEngine(), {}, max_segment_tokens=128)
    with pytest.raises(EngineStopping, match="not started"):
        translator.find_model()
