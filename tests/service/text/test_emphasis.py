"""Marks of emphasis are taken off a sentence, and put into its translation, all of them and in pairs."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.text import emphasis as emphasis_module
from service.text.emphasis import find_emphasis
from service.text.tags import Vote


def words(text):
    return [match.span() for match in re.finditer(r"[^\W_]+|[.!?]", text)]


def in_order(emphasis, translation):
    """Votes by which the words of a translation come from those of the sentence, one by one."""
    pairs = zip(words(translation), words(emphasis.text), strict=False)
    return [Vote(*here, *there) for here, there in pairs]


def put_back(text, translation):
    emphasis = find_emphasis(text)
    return marked(translation, emphasis.insertions(translation, in_order(emphasis, translation)))


def marked(text, insertions):
    done, out = 0, ""
    for place, mark in insertions:
        assert place >= done
        out, done = out + text[done:place] + mark, place
    return out + text[done:]


@pytest.mark.parametrize(
    "text, shown",
    [
        ("The **big** dog", "The big dog"),
        ("Do _not_ open, __ever__.", "Do not open, ever."),
        ("~~old~~ new", "old new"),
        ("***Very* big** dog", "Very big dog"),
        ("A **very *red* car** here (*see* below)", "A very red car here (see below)"),
        ("_**Wow**_!", "Wow!"),
        ("*not*", "not"),
        ("**Click {name} in `a*b*`** now", "Click {name} in `a*b*` now"),
        ("call f(*args, **kwargs) *now*", "call f(*args, **kwargs) now"),
        ("see https://a.b/*x*/ and *y*", "see https://a.b/*x*/ and y"),
        # Within a word, and around marks.
        ("**b**ig", "big"),
        ("un**believ**able, **Bold**text", "unbelievable, Boldtext"),
        ("What **is** this**?**", "What is this?"),
        # Without a partner at an end: it may be in another sentence.
        ("**Do not open.", "Do not open."),
        ("It is *hot.**", "It is *hot."),
    ],
)
def test_marks_are_taken_off(text, shown):
    assert find_emphasis(text).text == shown


@pytest.mark.parametrize(
    "text",
    [
        "Nothing here.",
        "snake_case_name is 2*3*4 and __init__, _private",
        "a * b * c",
        "call f(*args, **kwargs)",
        '"*" and "*"',
        "un*frig*believable",
        "2**3**4",
        "foo**,**bar",
        "a 5* hotel, a search with A*",
        r"\*no\* way",
        "`*a* b`",
        "*****",
        "**",
        "~5~ x ~~~six~~~",
        "*_*_*_*_*_*_*_*_*_*_a_*_*_*_*_*_*_*_*_*_*",
    ],
)
def test_other_signs_are_no_marks(text):
    assert find_emphasis(text) is None


@pytest.mark.parametrize(
    "text, translation, expected",
    [
        ("A **big** dog", "Un gros chien", "Un **gros** chien"),
        ("**Do *not* open!**", "Ne pas ouvrir !", "**Ne *pas* ouvrir !**"),
        ("**Stop.** Now", "Arrêtez. Maintenant", "**Arrêtez.** Maintenant"),
        ("*The* water", "L'eau", "*L'eau*"),
        ("See _the red_ car.", "Voir la rouge voiture.", "Voir _la rouge_ voiture."),
        ("**Do not open.", "N'ouvrez pas.", "**N'ouvrez pas."),
        ("**b**ig **D**og", "grand chien", "**grand** **chien**"),
        ("What **is** this**?!**", "Que c'est ?!", "Que **c'est** **?!**"),
        # As it was.
        ("a ~~b~~ **c *d***", "a b c d", "a ~~b~~ **c *d***"),
        # There is but one word for both.
        ("*Good* **day**", "Bonjour", "***Bonjour***"),
    ],
)
def test_marks_go_where_their_words_went(text, translation, expected):
    assert put_back(text, translation) == expected


TEXTS = st.lists(
    st.sampled_from(["*", "**", "_", "__", "~~", "***", " ", " ", "big", "dog", "l'eau", ".", "a_b", "(", ")", "7"]),
    max_size=24,
).map("".join)


MARKS = st.sampled_from(["", "*", "**", "_", "__", "~~", "***", "**_", "~~*"])


@settings(deadline=None)
@given(TEXTS, st.sampled_from(["Le gros chien aboie.", "Non", "l'eau d'un lac", ""]), st.booleans())
def test_no_mark_is_lost_and_none_stands_around_nothing(text, translation, is_known):
    emphasis = find_emphasis(text)
    if emphasis is None:
        return
    whole = [(place, char) for place, char in zip(emphasis.places, emphasis.text, strict=False)]
    assert all(text[place] == char for place, char in whole)
    votes = in_order(emphasis, translation) if is_known else []
    insertions = emphasis.insertions(translation, votes)
    kept = [text[place] for place in range(len(text)) if place not in emphasis.places[:-1]]
    assert sorted("".join(mark for _, mark in insertions)) == sorted(kept)
    assert marked(translation, insertions).translate({ord(sign): None for sign in "*_~"}) == translation


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["big", "dog", "Ünder", "7up", "so so"]), MARKS), min_size=1, max_size=12))
def test_a_sentence_gets_its_own_marks_back(parts):
    text = " ".join(mark + word + mark[::-1] for word, mark in parts) + "."
    plain = " ".join(word for word, _ in parts) + "."
    if text != plain and len(parts) > 1:
        assert find_emphasis(text).text == plain
        assert put_back(text, plain) == text


@pytest.mark.parametrize("part", ["*a ", "a* ", "*a* ", "*_", "**a *b ", "_a ", "*", "~~a~~"])
def test_no_text_takes_quadratic_time(part):
    def seconds(length):
        text = "x " + part * (length // len(part))
        started = time.process_time()
        find_emphasis(text)
        return time.process_time() - started

    short, long = min(seconds(2_000) for _ in range(3)), seconds(16_000)
    assert long < 24 * short + 0.1


def test_the_time_does_not_grow_with_the_marks_that_have_no_word(monkeypatch):
    calls = []
    place_tags = emphasis_module.place_tags
    monkeypatch.setattr(emphasis_module, "place_tags", lambda *given: calls.append(1) or place_tags(*given))
    emphasis = find_emphasis("**a** " * 60)
    assert emphasis.insertions("un", [])
    assert len(calls) <= 2
