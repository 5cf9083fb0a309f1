import pytest

from model.lexicon import Lexicon
from service.text.invented import invented, known_words, lacks_shown
from service.text.kept import KeptSpan

LEXICON = Lexicon(
    names=frozenset({"swann"}),
    translated=frozenset({"robinet", "fuit", "voisin"}),
    written=frozenset("the tap leaks my neighbor has a cat do you know how to fix that an old faucet".split()),
    translations={
        "robinet": ("tap", "faucet"), "voisin": ("neighbor",), "fuit": ("leaks",), "chat": ("cat",), "vieux": ("old",),
    },
)  # fmt: skip


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("Mon voisin a un chat.", "My neighvor has a cat.", ("neighvor",)),
        ("Mon voisin a un chat.", "My neighbor has a cat.", ()),
        ("Le robinet fuit.", "The robinet leaks.", ("robinet",)),
        ("Le garagiste fuit.", "The garagiste leaks.", ()),  # copied, and nothing better is known
        ("Swann a un chat.", "My Zwannn has a cat.", ()),  # a name: for those there is another check
        ("Robinet !", "Ribinette!", ("Ribinette",)),
        ("Le robinet.", "The tep.", ()),  # too short to tell
    ],
)
def test_a_word_that_stands_nowhere_is_invented(source, target, words):
    assert invented(source, target, LEXICON) == words


def test_without_a_list_of_words_nothing_is_invented():
    assert invented("Mon voisin.", "My neighvor.", Lexicon(frozenset(), frozenset())) == ()


def test_the_nearest_word_that_is_not_translated_is_shown_as_the_data_has_it():
    source = "Mon voisin a un vieux robinet."
    assert known_words(source, (), "My neighbor has an old rabinot.", LEXICON) == ((22, 29, "tap"),)
    assert known_words(source, (), "My naighbol has an old faucet.", LEXICON) == ((4, 10, "neighbor"),)
    both = ((4, 10, "neighbor"), (22, 29, "tap"))
    assert known_words(source, (), "My naighbol has an old rabinot.", LEXICON) == both


def test_what_is_kept_is_not_touched():
    source = "Mon voisin a un vieux robinet."
    spans = (KeptSpan(22, 29, "robinet", "code"),)
    assert known_words(source, spans, "My neighbor has an old rabinot.", LEXICON) == ()


def test_nothing_is_shown_where_nothing_was_invented():
    assert known_words("Mon voisin a un robinet.", (), "My neighbor has a cat.", LEXICON) == ()


def test_a_shown_word_may_be_written_in_another_form():
    assert not lacks_shown("The taps leak.", [(3, 10, "taps")])
    assert not lacks_shown("My neighbors.", [(4, 10, "neighbor")])
    assert lacks_shown("The cat leaks.", [(3, 10, "tap")])
