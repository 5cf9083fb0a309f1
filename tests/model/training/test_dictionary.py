import random
import re
import sys

import pytest

from model.training import dictionary
from model.training.data import SentencePair, read_pairs, write_pairs
from model.training.dictionary import (
    Grammar,
    english_plural,
    entries,
    entry_pairs,
    french_plural,
    substituted_pairs,
    verb_forms,
)

# What a corpus would tell: "voiture" is feminine, "chat" is masculine, and so is what ends like "cerveau".
CORPUS = [
    SentencePair("tatoeba", "The cat is on the table.", "Le chat est sur la table."),
    SentencePair("tatoeba", "An apple is on the table.", "Une pomme est sur la table."),
    SentencePair("tatoeba", "I saw two cats.", "J'ai vu deux chats."),
    SentencePair("tatoeba", "The brain is big.", "Le cerveau est grand."),
    SentencePair("tatoeba", "A veil hides a hat.", "Un voile cache un chapeau."),
    SentencePair("tatoeba", "The cake is on a desk.", "Le gâteau est sur un bureau."),
    SentencePair("tatoeba", "We want to wash the car.", "Nous voulons laver la voiture."),
    SentencePair("tatoeba", "She was washing her car.", "Elle lavait sa voiture."),
    SentencePair("tatoeba", "Tom washed the car.", "Tom a lavé la voiture."),
]
WORDS = [("cat", "chat"), ("car", "voiture"), ("flask", "fiole"), ("table", "table"), ("to wash", "laver"), ("mallet", "maillet"), ("oar", "rameau"),
         ("anvil", "étagère"), ("to peel", "peler"), ("to filter", "filtrer"), ("to dye", "teinter")]  # fmt: skip


def made(read: str = "fr", highest: int = 0) -> list[tuple[str, str]]:
    pairs = substituted_pairs(CORPUS, WORDS, read, highest, each=9, seed=1)
    return [(pair.first, pair.second) for pair in pairs]


def test_a_rare_noun_stands_for_a_common_one_of_its_gender_on_both_sides():
    found = made()
    assert ("The mallet is on the table.", "Le maillet est sur la table.") in found
    assert ("The oar is on the table.", "Le rameau est sur la table.") in found, "what ends in -eau is masculine"
    assert ("I saw two mallets.", "J'ai vu deux maillets.") in found
    assert ("I saw two oars.", "J'ai vu deux rameaux.") in found
    assert ("Tom washed the flask.", "Tom a lavé la fiole.") in found
    assert not any(re.search(r"\b[ls]a (maillet|rameau)|\b(le|un) fiole", french) for _, french in found)


def test_a_word_that_begins_with_a_vowel_takes_the_place_of_none_that_does_not():
    assert not any("étagère" in french for _, french in made())


def test_verbs_change_in_the_same_form_on_both_sides():
    found = made()
    assert ("We want to filter the car.", "Nous voulons filtrer la voiture.") in found
    assert ("She was filtering her car.", "Elle filtrait sa voiture.") in found
    assert ("Tom filtered the car.", "Tom a filtré la voiture.") in found
    assert ("Tom dyed the car.", "Tom a teinté la voiture.") in found
    assert not any("pel" in french for _, french in found), "its stem changes: il pèle"


def test_the_article_goes_with_the_word():
    corpus = [SentencePair("tatoeba", "A cat is an animal.", "Un chat est un animal."), *CORPUS]
    pairs = list(substituted_pairs(corpus, WORDS, "fr", 0, each=9, seed=1))
    assert ("An oar is an animal.", "Un rameau est un animal.") in [(pair.first, pair.second) for pair in pairs]


def test_common_words_are_not_put_anywhere_and_a_seed_gives_the_same_pairs():
    assert not any("chat" in french and "est sur la chat" in french for _, french in made())
    assert made() == made()
    assert len(made(highest=100)) > len(made())


def test_one_word_of_each_side_is_another_one():
    words = [(pair.first.split(), pair.second.split()) for pair in CORPUS]
    assert len(made()) >= 10
    for english, french in made():
        changed = [
            (sum(map(str.__ne__, first, english.split())), sum(map(str.__ne__, second, french.split())))
            for first, second in words
            if (len(first), len(second)) == (len(english.split()), len(french.split()))
        ]
        assert (1, 1) in changed, (english, french)


@pytest.mark.parametrize(
    ("singular", "plural"), [("box", "boxes"), ("city", "cities"), ("day", "days"), ("dish", "dishes"), ("cat", "cats")]
)
def test_english_plurals(singular, plural):
    assert english_plural(singular) == plural


@pytest.mark.parametrize(
    ("singular", "plural"),
    [("gâteau", "gâteaux"), ("cheval", "chevaux"), ("bras", "bras"), ("feu", "feux"), ("mot", "mots")],
)
def test_french_plurals(singular, plural):
    assert french_plural(singular) == plural


@pytest.mark.parametrize(
    ("english", "french", "past", "going"),
    [
        ("wash", "laver", ("washed", "lavé"), ("washing", "lavant")),
        ("place", "placer", ("placed", "placé"), ("placing", "plaçant")),
        ("manage", "diriger", ("managed", "dirigé"), ("managing", "dirigeant")),
        ("plan", "planifier", ("planned", "planifié"), ("planning", "planifiant")),
        ("copy", "copier", ("copied", "copié"), ("copying", "copiant")),
        ("agree", "accorder", ("agreed", "accordé"), ("agreeing", "accordant")),
    ],
)
def test_forms_of_verbs(english, french, past, going):
    forms = verb_forms(english, french)
    assert forms["past"] == past
    assert forms["going"] == going


@pytest.mark.parametrize(
    ("english", "french"), [("eat", "manger"), ("finish", "finir"), ("pay", "payer"), ("hope", "espérer")]
)
def test_verbs_that_rules_do_not_cover_have_no_forms(english, french):
    assert verb_forms(english, french) == {}


def test_entries_come_with_and_without_an_article():
    pairs = {
        (pair.first, pair.second)
        for pair in entry_pairs([("cat", "chat"), ("red carpet", "tapis rouge")], Grammar(CORPUS))
    }
    assert pairs == {
        ("cat", "chat"), ("a cat", "un chat"), ("The cat.", "Le chat."), ("red carpet", "tapis rouge"),
    }  # fmt: skip


def test_names_and_terms_are_no_words_to_put_in():
    assert not list(
        entries([("Paris", "Paris"), ("ice cream", "glace"), ("to give up", "abandonner")], Grammar(CORPUS))
    )


def test_the_command_writes_what_training_reads(tmp_path, monkeypatch, capsys):
    write_pairs(tmp_path / "corpus.tsv.gz", [*CORPUS, SentencePair("law", "The cat is here.", "Le chat est ici.")])
    words = random.Random(1).sample(WORDS, len(WORDS))
    write_pairs(tmp_path / "words.tsv.gz", [SentencePair("wiktionary", *word) for word in words])
    output = tmp_path / "out.tsv.gz"
    arguments = ["dictionary", *map(str, (tmp_path / "corpus.tsv.gz", tmp_path / "words.tsv.gz", output))]
    monkeypatch.setattr(sys, "argv", [*arguments, "--read", "fr", "--highest", "0"])
    dictionary.main()
    pairs = list(read_pairs(output))
    assert {pair.source_name for pair in pairs} == {"dictionary", "dictionary-sentences"}
    assert not any("here" in pair.first for pair in pairs), "only everyday pairs are made anew"
    assert (
        f"dictionary-sentences: {sum(pair.source_name == 'dictionary-sentences' for pair in pairs)}"
        in capsys.readouterr().out
    )
