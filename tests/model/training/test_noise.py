import random
import re
import sys

from model.training import noise
from model.training.data import SentencePair, read_pairs, write_pairs
from model.training.noise import (
    dated_pairs,
    fully_named_pairs,
    in_capitals,
    noisy_pairs,
    placed_pairs,
    random_date,
    renamed_days,
    shared_places,
    short_pairs,
    with_dots,
    without_apostrophes,
)


def pair(first: str, second: str) -> SentencePair:
    return SentencePair("tatoeba", first, second)


def texts(pairs) -> list[tuple[str, str]]:
    return [(made.first, made.second) for made in pairs]


def test_apostrophes_go_on_the_side_that_is_read_where_no_other_word_comes_of_it():
    pairs = [
        pair("I can't say if we're late.", "J'ignore si l'on est là."),
        pair("They were ill.", "Ils étaient là, lon."),
    ]
    assert texts(without_apostrophes(pairs, "first")) == [("I cant say if we're late.", pairs[0].second)]
    assert texts(without_apostrophes(pairs, "second")) == [(pairs[0].first, "Jignore si l'on est là.")]


def test_capitals_keep_accents_and_skip_what_is_in_capitals_already():
    assert texts(in_capitals([pair("Where is it?", "Où est-ce ?"), pair("OK!", "OK !")])) == [
        ("WHERE IS IT?", "OÙ EST-CE ?")
    ]


def test_three_dots_end_both_sides_of_short_pairs_with_a_stop():
    pairs = [pair("Please wait.", "Attendez."), pair("Really?", "Vraiment ?"), pair("Wait...", "Attends...")]
    assert texts(with_dots([*pairs, pair("One two three four five six.", "Six.")])) == [
        ("Please wait...", "Attendez...")
    ]


def test_short_pairs_come_with_and_without_their_stop():
    pairs = [
        pair("Thank you.", "Merci."),
        pair("Never", "Jamais"),
        pair("Hi!", "Salut !"),
        pair("Go", "Va-t'en d'ici tout de suite"),
    ]
    expected = [
        ("Thank you.", "Merci."),
        ("Thank you", "Merci"),
        ("Never", "Jamais"),
        ("Never.", "Jamais."),
        ("Hi!", "Salut !"),
    ]
    assert texts(short_pairs(pairs)) == expected


def test_dates_say_the_same_day_in_both_languages():
    generator = random.Random(1)
    months = dict(zip(noise._ENGLISH_MONTHS, noise._FRENCH_MONTHS, strict=True))
    made = {random_date(generator) for _ in range(3000)}
    for english, french in made:
        day, month, year = re.fullmatch(r"le (1er|\d+) (\w+)(?: (\d+))?", french).groups()
        assert [months[word] for word in re.findall(r"[A-Z]\w+", english)] == [month]
        assert re.findall(r"\d+", english) == [day.removesuffix("er"), *([year] if year else [])]
        for number, ending in re.findall(r"(\d+)(st|nd|rd|th)", english):
            teen = 10 < int(number) < 20
            assert ending == ("th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th"))
    assert ("the 4th of July", "le 4 juillet") in made
    assert ("May 1st", "le 1er mai") in made
    assert any(re.fullmatch(r"\d+ May \d{4}", english) for english, _ in made)
    assert any(re.fullmatch(r"May \d+, \d{4}", english) for english, _ in made)


def test_the_same_day_or_month_of_both_sides_gets_another_name():
    pairs = [
        pair("He comes on Sunday.", "Il vient le dimanche."),
        pair("It's cold in March.", "Il fait froid en mars."),
        pair("On Monday or Friday.", "Lundi ou vendredi."),
        pair("On Tuesday.", "Le mercredi."),
        pair("He is on the march.", "Il est en mars."),
        pair("See you tomorrow.", "À demain."),
    ]
    days = {
        f"{english}day": f"{french}{'che' if english == 'Sun' else 'di'}" for english, french in noise._DAYS.items()
    }
    months = dict(zip(noise._ENGLISH_MONTHS, noise._FRENCH_MONTHS, strict=True))
    made = texts(renamed_days(pairs, random.Random(1), each=4))
    assert len(made) == len(set(made)) == 8
    for first, second in made[:4]:
        day = re.fullmatch(r"He comes on (\w+)\.", first)[1]
        assert day != "Sunday"
        assert second == f"Il vient le {days[day]}."
    for first, second in made[4:]:
        month = re.fullmatch(r"It's cold in (\w+)\.", first)[1]
        assert month != "March"
        assert second == f"Il fait froid en {months[month]}."


def test_only_a_day_that_stands_alone_on_both_sides_becomes_a_date():
    pairs = [
        pair("Come on Monday.", "Viens lundi."),
        pair("Come on Monday.", "Viens le lundi."),
        pair("Come on Monday.", "Viens lundi matin."),
        pair("Come on Monday.", "Viens mardi."),
        pair("Come Monday.", "Viens lundi."),
    ]
    made = texts(dated_pairs(pairs, random.Random(1), each=5))
    assert len(made) == 5
    for first, second in made:
        assert re.fullmatch(r"Come on (?=.*\d)(?=.*[A-Z]).+\.", first)
        assert re.fullmatch(r"Viens le (1er|\d+) \w+( \d+)?\.", second)


def test_places_are_replaced_alike_by_others_of_one_or_several_words():
    pairs = [
        pair("I live in Boston.", "Je vis à Boston."),
        pair("We went to San Francisco.", "Nous sommes allés à San Francisco."),
        pair("I was in London.", "J'étais à Londres."),
        pair("Boston is not Boston.", "Boston n'est pas Boston."),
    ]
    assert shared_places(pairs) == ["Boston", "San Francisco"]
    made = texts(placed_pairs(pairs, random.Random(1), each=40))
    places = [re.fullmatch(r"I live in (.+)\.", first)[1] for first, _ in made]
    assert [second for _, second in made] == [f"Je vis à {place}." for place in places]
    assert len(places) == 40
    assert "San Francisco" in places
    assert "Boston" not in places
    assert any(len(place.split()) == 1 for place in places)


def test_a_family_name_joins_tom_unless_he_has_one_or_owns_something():
    pairs = [
        pair("Tom sleeps.", "Tom dort."),
        pair("Tom Miller sleeps.", "Tom Miller dort."),
        pair("Tom's wife", "La femme de Tom"),
    ]
    made = texts(fully_named_pairs(pairs * 20, random.Random(1)))
    assert len(made) == 20
    for first, second in made:
        name = re.fullmatch(r"([A-Z]\w+ [A-Z]\w+) sleeps\.", first)[1]
        assert second == f"{name} dort."


def test_the_same_seed_makes_the_same_pairs_and_every_kind_has_its_source(tmp_path, monkeypatch, capsys):
    everyday = [
        pair("I can't come on Monday.", "Je ne peux pas venir lundi."),
        pair("Tom lives in Boston.", "Tom vit à Boston."),
        pair("Thank you.", "Merci."),
    ] * 40
    corpus, output = tmp_path / "corpus.tsv.gz", tmp_path / "noise.tsv.gz"
    write_pairs(corpus, [*everyday, SentencePair("canada-digital", "Send", "Envoyer"), SentencePair("x", "No", "Non")])
    monkeypatch.setattr(
        sys, "argv", ["noise", str(corpus), str(output), "--share", "0.5", "--interface", "canada-digital"]
    )
    noise.main()
    made = list(read_pairs(output))
    interface = [SentencePair("canada-digital", "Send", "Envoyer")]
    assert made == list(noisy_pairs(everyday, interface, "first", 0.5, 1))
    kinds = {name: sum(pair.source_name == name for pair in made) for name in {pair.source_name for pair in made}}
    assert set(kinds) == {
        f"noise-{kind}"
        for kind in ("apostrophes", "capitals", "dots", "short", "dates", "days", "places", "full-names")
    }
    assert 40 < kinds["noise-capitals"] < 80
    assert f"noise-capitals: {kinds['noise-capitals']}" in capsys.readouterr().out
    assert ("Send.", "Envoyer.") in texts(made)
    assert ("No", "Non") not in texts(made)
