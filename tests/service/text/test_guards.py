import time

import pytest

from service.text.guards import faults, loses_much


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("salad", "salade salade salade salade"),
        ("I like it.", "J'aime ça, j'aime ça, j'aime ça, j'aime ça."),
        ("The cat sat.", "le chat est là le chat est là le chat est là"),
        ("Ninja", "Ninjajajajajaja"),
        ("He left.", "ha ha ha ha ha ha"),
    ],
)
def test_loops_are_noticed(source, target):
    assert "repetition" in faults(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("no no no no no", "non non non non non"),
        ("ha ha ha ha", "hi hi hi hi"),
        ("very very good", "très, très bon"),
        ("Chapter one ........", "Chapitre un ........"),
        ("He has a dog and a cat and a bird.", "Il a un chien et un chat et un oiseau."),
        ("Sooooooooo good", "Siiiiiiiii bon"),
    ],
)
def test_what_the_source_repeats_may_be_repeated(source, target):
    assert faults(source, target) == ()


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("OK", "D'accord", ()),
        ("re", "Réponds", ("too_long",)),
        ("Hello", "Bonjour à vous, mon ami", ("too_long",)),
        ("The old man went to see the river.", "Oui.", ("too_short",)),
        ("the old man", "The old man.", ("untranslated",)),
        ("Tom Sawyer", "Tom Sawyer", ()),
        ("The old man went to see the river.", "Le vieil homme", ()),
        ("The old man went to see the river.", "L'homme vit.", ("too_short",)),
        ("The old man went to see the river.", "老人去看河。", ()),
        ("one (two) three", "un (deux trois", ("signs",)),
        ("he and/or she", "il et elle", ("signs",)),
        ("5 / person", "5 /.", ("signs",)),
        ("he w/o her", "il sans elle", ()),
        ('"Go," he said', "va, dit-il", ("marks",)),
        ("Is he in?", "Il est là.", ("marks",)),
        ('Is "he" in?', "Est-« il » là ?", ()),
        ('The "cat".', "Le «  ».", ("quotes",)),
        ("the cat (a dog)", "le chat ( )", ("quotes",)),
        ('"Wait..." she said', "« Nous l'avons dit »", ("quotes",)),
        ('he said "wait"', "« Attends », dit-il", ()),
        ('"Wait."', "« Attends. »", ()),
        ('"What?" asked Tom.', "« Qu'est-ce qui a demandé Tom.", ("quotes", "marks")),
    ],
)
def test_lengths_and_copies(source, target, expected):
    assert faults(source, target) == expected


@pytest.mark.parametrize("part", ["a", "ab ", "no ", "(", "abcabd"])
def test_long_texts_take_bounded_time(part):
    text = part * (8_000 // len(part))
    started = time.process_time()
    faults(text, text)
    assert time.process_time() - started < 2


def test_a_long_translation_that_has_lost_a_clause_is_noticed_where_the_languages_are_known():
    source = "He said that he would come, and she said so, too. " * 4
    assert loses_much(source, source[: int(len(source) * 0.7)], "en-GB", "fr")
    assert not loses_much(source, source[: int(len(source) * 0.8)], "en", "fr")
    assert not loses_much(source, source[: int(len(source) * 0.7)], "fr", "en")  # English is shorter
    assert loses_much(source, source[: int(len(source) * 0.5)], "fr", "en")
    assert not loses_much(source, source[: int(len(source) * 0.1)], "en", "zh")
    assert not loses_much("He came, she came.", "Ils", "en", "fr")
