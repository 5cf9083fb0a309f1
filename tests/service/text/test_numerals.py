import pytest

from service.text.numerals import lost_numerals, numerals


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "twenty-three cats, one hundred and five dogs.", [("twenty-three", 23), ("one hundred and five", 105)]),
        ("en", "Seventeen people, born in nineteen eighty-four", [("Seventeen", 17), ("nineteen eighty-four", 1984)]),
        ("en-GB", "two hundred and fifty thousand", [("two hundred and fifty thousand", 250_000)]),
        ("en", "the twenty-first of us", [("twenty-first", 21)]),
        ("fr", "Deux mille cinq cents, vingt et un.", [("Deux mille cinq cents", 2500), ("vingt et un", 21)]),
        ("fr", "soixante et onze", [("soixante et onze", 71)]),
        ("fr", "quatre-vingt-dix-sept ans", [("quatre-vingt-dix-sept", 97)]),
        # What becomes another word, or is none alone.
        ("en", "one or two, a third, tens of them, a hundred, 3 million, petits fours, 23 cats", []),
        ("fr", "un habit neuf, tous les deux, 46 cents", []),
        ("de", "dreiundzwanzig Katzen", []),
    ],
)  # fmt: skip
def test_numbers_in_words(language, text, expected):
    found = numerals(text, language)
    assert [(each.text, each.value) for each in found] == expected
    assert all(text[each.start : each.end] == each.text for each in found)


@pytest.mark.parametrize(
    ("source", "target", "lost"),
    [
        ("I have twenty-three cats.", "J'ai vingt-trois chats.", []),
        ("I have twenty-three cats.", "J'ai 23 chats.", []),
        ("I have twenty-three cats.", "J'ai vingt-quatre chats.", ["twenty-three"]),
        ("I have twenty-three cats.", "J'ai vingt chats.", ["twenty-three"]),
        ("Two thousand five hundred soldiers", "2 500 soldats", []),
        ("Two thousand five hundred soldiers", "deux mille cinq cents soldats", []),
        ("some twenty people, fifty others", "une vingtaine de gens, cinquante autres", []),
        ("in nineteen eighty-four", "en 1984", []),
        ("in nineteen eighty-four", "en mille neuf cent quatre-vingt-quatre", []),
        ("in nineteen eighty-four", "en 1994", ["nineteen eighty-four"]),
        ("He saw Ocean's Eleven.", "Il a vu Ocean's Eleven.", []),
        ("the fifth and the sixth", "le cinquième et le dixième", ["sixth"]),
    ],
)
def test_a_number_that_became_another_is_lost(source, target, lost):
    found = lost_numerals(numerals(source, "en"), target, "fr")
    assert [each.text for each in found] == lost
    assert lost_numerals(numerals(source, "en"), target, "de") == ()
