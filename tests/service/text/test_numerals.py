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
        ("de", "dreiundzwanzig Katzen am Montag", []),
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It is on May 5, 2024.", "It is on 5 May 2024."),
        ("On July 4th we eat.", "On 4 July we eat."),
        ("Sep 3", "3 September"),
        ("On 12 June and in April 2019", "On 12 June and in April 2019"),
    ],
)
def test_a_date_is_shown_with_its_day_first(text, shown):
    changes = sorted(change for each in numerals(text, "en") for change in each.changes)
    for start, end, instead in reversed(changes):
        text = text[:start] + instead + text[end:]
    assert text.replace("4 Julyth", "4 July") == shown


@pytest.mark.parametrize(
    ("language", "source", "target", "lost"),
    [
        ("en", "on May 5, 2024, a Monday", "le lundi 5 mai 2024", []),
        ("en", "on May 5, 2024, a Wednesday", "le 5 2024, Wednes", ["May", "Wednesday"]),
        ("en", "on the 4th of July", "le 4 July", ["July"]),
        ("en", "in Sept. 2021", "en sept. 2021", []),
        ("en", "You may march on; May 10 people come", "Vous pouvez avancer", []),
        ("fr", "le samedi 1er août", "on Saturday, August 1", []),
        ("fr", "en août 2020, mais pas lundi", "in 2020, but not on Friday", ["août", "lundi"]),
    ],
)
def test_months_and_days_are_not_lost(language, source, target, lost):
    other = "fr" if language == "en" else "en"
    assert [each.text for each in lost_numerals(numerals(source, language), target, other)] == lost
