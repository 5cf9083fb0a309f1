"""Most sentences are soon seen to need none of the looks at special cases; what is found is the same without that."""

import itertools
import random
import re

import pytest

from loadtests.texts import held_out_sentences
from model import normalizer
from model.normalizer import normalize
from service.text import ends, guards, kept, wording
from service.text.kept import kept_spans

PIECES = (
    "The", "dog", "MacOS", "iPhone", "U.S.", "J.", "R.", "git", "import", "re-import", "don't", "dont", "cant", "--",
    "-v", "and/or", "(open", "no no no no", "go on and go on and go on and", "'", '"', '"word"', "wait...", "so?!",
    "x.y", "f(x)", "a::b", ":)", ";-D", "....", ",,,,,", "1st", "4", "of",
    "May", "(maybe)", "é", "naïve", "don’t", "…", "«", "»", "\t", "", "-", "haha", "hahahahaha", "\x01", "a" * 61,
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
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_found_is_the_same_without_the_short_cut(monkeypatch, module, name, without, find):
    found = find()
    monkeypatch.setattr(module, name, without)
    assert find() == found
