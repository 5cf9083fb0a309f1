"""Most sentences are soon seen to need none of the looks at special cases; what is found is the same without that."""

import itertools
import random
import re

import pytest

from loadtests.texts import held_out_sentences
from model import normalizer
from model.decoding import DecodingOptions
from model.lexicon import Lexicon
from model.normalizer import normalize
from service import pipeline
from service.text import ends, forms, guards, kept, lists, names, negation, quotes, segmenter, sentences, wording
from service.text.kept import kept_spans
from tests.service.fake_tokenizer import FakeTokenizer

PIECES = (
    "The", "dog", "MacOS", "iPhone", "U.S.", "J.", "R.", "git", "import", "re-import", "don't", "dont", "cant", "--",
    "-v", "and/or", "(open", "no no no no", "go on and go on and go on and", "'", '"', '"word"', "wait...", "so?!",
    "x.y", "f(x)", "a::b", ":)", ";-D", "....", ",,,,,", "1st", "4", "of",
    "May", "(maybe)", "not", "N’T", "Never", "ne", "pas", "Mr. Brown and", "Dr", "Tom", "REILLY", "[", "()", "(a)",
    "‘so’", "12 dogs and", "3 cats", "；", ";", "犬", "Ա",
    "é", "naïve", "don’t", "…", "«", "»", "\t", "", "-", "haha", "hahahahaha", "\x01", "a" * 61,
)  # fmt: skip
_generator = random.Random(1)
TEXTS = [
    *held_out_sentences()[::5],
    *PIECES,
    *(" ".join(pair) for pair in list(itertools.product(PIECES, repeat=2))[::3]),
    *(" ".join(_generator.choices(PIECES, k=8)) for _ in range(300)),
    *("".join(_generator.choices(PIECES, k=3)) for _ in range(200)),
]


def is_known(char):
    return char not in "«é"


def all_kept():
    return [(kept_spans(text), kept_spans(text, is_known)) for text in TEXTS]


def all_normalized():
    return [normalize(text, language) for text in TEXTS for language in ("en", "fr", "de")]


def all_ends():
    return [ends.ends(text) for text in TEXTS]


def all_faults():
    return [guards.faults(source, target) for source, target in zip(TEXTS, reversed(TEXTS), strict=True)]


def all_changes():
    return [wording.changes(text, (), "en") for text in TEXTS]


def all_sentences():
    return [sentences.sentence_spans(text, language) for text in TEXTS for language in ("en", "fr", "el")]


def all_quotes():
    pairs = zip(TEXTS, reversed(TEXTS), strict=True)
    return [
        (quotes.pairs(source), quotes.doubled(source), quotes.misplaced(source, target)) for source, target in pairs
    ]


def all_negations():
    return [negation.loses_negation(text, "", *pair) for text in TEXTS for pair in (("en", "fr"), ("fr", "en"))]


def all_names():
    return [list(names.names(text, spans, LEXICON)) for text in TEXTS for spans in ((), kept_spans(text, is_known))]


def all_titles():
    return [names.loses_title(text, "", *pair) for text in TEXTS for pair in (("en", "fr"), ("fr", "en"))]


def all_other_marks():
    return [ends.finished("So.", ends.ends("So."), [forms.Piece(text, 0, len(text))], "fr") for text in TEXTS if text]


def all_lists():
    return [lists.lacks_counted(text, "12 3 4", *pair) for text in TEXTS for pair in (("en", "fr"), ("fr", "en"))]


def all_pauses():
    nodes = [pipeline._Node(0, len(text), text, ()) for text in TEXTS]
    return [pipeline._pauses(node) for node in nodes]


def num_tokens(text):
    """As of a tokenizer to which letters of other scripts are many, and that spells what is kept in bytes."""
    return 2 + sum(1 if char.isascii() else 3 if char == "\ue000" else 12 for char in text)


def all_segments():
    vocabulary = pipeline.Vocabulary(FakeTokenizer(), "en", "fr", LEXICON)
    found = []
    for text in TEXTS[::4]:
        work = pipeline.SegmentWork(vocabulary, DecodingOptions(), max_tokens=200)
        document = segmenter.segment_text(
            text,
            "en",
            max_tokens=24,
            count_tokens=num_tokens,
            kept=lambda part, work=work: [(span.start, span.end) for span in work.spans(part)],
        )
        for segment in document.segments:
            work.add(segment.text)
        found.append((document, work.sequences()))
    return found


LEXICON = Lexicon(frozenset({"reno", "tom", "the", "may"}), frozenset({"dog", "open", "may"}))
NEVER, ALWAYS = re.compile("(?!)"), re.compile("")


@pytest.mark.parametrize(
    ("module", "name", "without", "find"),
    [
        (kept, "_PLAIN", NEVER, all_kept),
        (kept, "_is_readable", lambda _text, _is_known: False, all_kept),
        (normalizer, "_UNTIDY_ASCII", ALWAYS, all_normalized),
        (ends, "_last_marks", lambda _text, start=0: start, all_ends),
        (guards, "_may_have_runs", lambda _text: True, all_faults),
        (guards, "_SIGN", ALWAYS, all_faults),
        (guards, "_distances", lambda _words, longest: range(1, longest + 1), all_faults),
        (wording, "_may_contract", lambda _text: True, all_changes),
        (wording, "_DIGIT", ALWAYS, all_changes),
        (sentences, "_ONE_SENTENCE", NEVER, all_sentences),
        (segmenter, "_SHORT_TOKENS", NEVER, all_segments),
        (pipeline, "_SMALL_WORD", NEVER, all_segments),
        (pipeline, "_MARKS_IN_A_ROW", ALWAYS, all_pauses),
        (quotes, "_OPENING", ALWAYS, all_quotes),
        (quotes, "_BRACKET", ALWAYS, all_quotes),
        (negation, "_PARTS", {"en": ("",), "fr": ("",)}, all_negations),
        (names, "_CAPITAL", ALWAYS, all_names),
        (names, "_INITIALS", {"en": ("",), "fr": ("",)}, all_titles),
        (ends, "_FIRST_OF_OTHERS", "", all_other_marks),
        (lists, "_DIGIT", ALWAYS, all_lists),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_found_is_the_same_without_the_short_cut(monkeypatch, module, name, without, find):
    found = find()
    monkeypatch.setattr(module, name, without)
    assert find() == found
