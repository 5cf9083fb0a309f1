import random
import re

from model.training.data import SentencePair
from model.training.names import invented_name, renamed_pairs, shared_names

PAIRS = [
    SentencePair("tatoeba", "Tom sleeps.", "Tom dort."),
    SentencePair("tatoeba", "I saw Tom in Boston.", "J'ai vu Tom à Boston."),
    SentencePair("tatoeba", "Tom told Tom's wife.", "Tom l'a dit à la femme de Tom."),
    SentencePair("tatoeba", "Tomorrow is Monday.", "Demain, c'est lundi."),
    SentencePair("tatoeba", "Call me, Tom.", "Appelle-moi."),
]


def test_only_pairs_with_one_name_on_both_sides_are_renamed_alike():
    renamed = list(renamed_pairs(PAIRS, ["Rex"], seed=1))
    assert len(renamed) == 2
    for pair, original in zip(renamed, PAIRS, strict=False):
        name = re.fullmatch(original.first.replace("Tom", "(.+)"), pair.first)[1]
        assert name != "Tom"
        assert pair == SentencePair(
            "tatoeba-names", original.first.replace("Tom", name), original.second.replace("Tom", name)
        )


def test_names_come_from_both_sides_and_not_from_sentence_starts():
    pairs = [
        *PAIRS,
        SentencePair("tatoeba", "Call Rita and Peter.", "Appelle Rita et Pierre."),
        SentencePair("tatoeba", "Nobody lives in Berlin.", "Nobody habite à Berlin."),
    ]
    assert shared_names(pairs) == ["Berlin", "Boston", "Rita", "Tom"]
    assert "Berlin" not in shared_names(pairs * 100)


def test_invented_names_vary_start_with_a_capital_and_repeat_by_seed():
    names = [invented_name(random.Random(seed)) for seed in range(200)]
    assert len(set(names)) > 150
    assert all(re.fullmatch(r"[BCDFGJKLMNPRSTVWYZ][a-z]+", name) for name in names)
    assert names == [invented_name(random.Random(seed)) for seed in range(200)]
