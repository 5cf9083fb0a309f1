"""Places of tokens where a segment was parted, or kept spans were put back. The model is a fake."""

import dataclasses
from types import SimpleNamespace

import pytest

from model.decoding import Hypothesis
from service.inspection.pairs import Ask, PairFinder
from service.pipeline import Part
from service.text.forms import Piece
from service.text.segmenter import Document, Segment
from service.translator import SegmentTranslation, TextTranslation
from tests.model.tiny import tiny_config
from tests.service.fake_tokenizer import EOS_ID, FIRST_ID, FakeTokenizer
from tests.service.fakes import FAKE_MODEL

TOKENIZER = FakeTokenizer()


@pytest.fixture
def finder():
    translator = SimpleNamespace(tokenizer=lambda model: TOKENIZER)
    facts = SimpleNamespace(config=tiny_config(decoder_start_id=EOS_ID))
    return PairFinder(None, translator, SimpleNamespace(facts=lambda name: facts))


def part(segment, start, end, written, *, text=None, pieces=None):
    """A part of a segment whose translation is what the model wrote, unless a text is given."""
    encoding = TOKENIZER.encode(segment[start:end], "en", add_eos=True)
    shifted = tuple((start + first, start + last) for first, last in encoding.source_spans)
    text = written if text is None else text
    tokens = (*(FIRST_ID + ord(char) for char in written), EOS_ID)
    return Part(
        start,
        end,
        (text,),
        dataclasses.replace(encoding, source_spans=shifted),
        (Hypothesis(tokens, "stop"),),
        (Piece(written, 0, len(written)),) if pieces is None else pieces,
    )


def looked_into(finder, text, start, parts):
    """The pairs of a text with one segment."""
    segment = Segment(start, start + sum(part.end - part.start for part in parts), text[start:], translatable=True)
    encoding, hypothesis = parts[0].encoding, parts[0].hypotheses[:1]
    candidates = tuple(
        SimpleNamespace(text="".join(each.texts[0] for each in parts), hypothesis=each) for each in hypothesis
    )
    done = SegmentTranslation(segment, encoding, candidates, tuple(parts))
    translation = TextTranslation(Document(text, (segment,)), (done,))
    return finder.of_translation(Ask(text, FAKE_MODEL), translation)


def places(side):
    return [(token.start, token.end) for token in side.tokens]


def test_each_part_is_looked_into_with_places_in_the_whole_texts(finder):
    segment = "ab, cd"
    found = looked_into(
        finder,
        "- " + segment,
        2,
        [
            part(segment, 0, 3, "AB;"),
            part(segment, 3, 6, "CDE", text=" CDE", pieces=(Piece(" ", 0, 0), Piece("CDE", 0, 3))),
        ],
    )
    assert found.translation == "- AB; CDE"
    first, second = found.pairs
    assert [(pair.index, pair.segment_index, pair.start, pair.end) for pair in found.pairs] == [
        (0, 0, 2, 5),
        (1, 0, 5, 8),
    ]
    assert (first.source_text, second.source_text) == ("ab,", " cd")
    for pair in found.pairs:
        source, target, inputs = pair.sides
        assert found.ask.text[pair.start : pair.end] == pair.source_text
        assert found.translation[pair.target_start : pair.target_end] == pair.target_text
        for side, text in ((source, found.ask.text), (target, found.translation)):
            for token in side.tokens[:-1]:
                assert text[token.start : token.end] in (token.piece, "")
            for word in side.placed_words:
                assert text[word.start : word.end] == word.text
        assert inputs.ids[1:] == target.ids[:-1]


def test_a_kept_span_s_placeholder_stands_for_the_whole_span(finder):
    segment = "see x.y now"
    pieces = (Piece("vu ", 0, 3), Piece("x.y", 3, 4, span="kept"), Piece(" la", 4, 7))
    found = looked_into(finder, segment, 0, [part(segment, 0, 11, "vu 5 la", text="vu x.y la", pieces=pieces)])
    (pair,) = found.pairs
    assert places(pair.sides[1]) == [(0, 1), (1, 2), (2, 3), (3, 6), (6, 7), (7, 8), (8, 9), (9, 9)]
    assert [word.text for word in pair.sides[1].placed_words if not word.is_special] == ["vu", "x.y", "la"]


def test_space_that_was_taken_off_has_no_place(finder):
    found = looked_into(finder, "ab", 0, [part("ab", 0, 2, "X ", text="X", pieces=(Piece("X", 0, 1),))])
    assert places(found.pairs[0].sides[1])[-3:] == [(0, 1), (1, 1), (1, 1)]


def test_a_text_that_the_model_did_not_write_gives_its_tokens_no_place(finder):
    found = looked_into(finder, "ab", 0, [part("ab", 0, 2, "XY", text="ab", pieces=())])
    assert set(places(found.pairs[0].sides[1])) == {(0, 0)}


def test_what_was_not_shown_to_the_model_is_there_without_tokens(finder):
    segment = Segment(0, 1, "1", translatable=False)
    found = finder.of_translation(
        Ask("1", FAKE_MODEL), TextTranslation(Document("1", (segment,)), (SegmentTranslation(segment),))
    )
    (pair,) = found.pairs
    assert (pair.source, pair.target_text) == (None, "1")
