"""Everyday pairs without capitals and stop, and several in one line."""

from model.training.data import SentencePair
from model.training.variations import bare_pairs, joined_pairs

_PAIRS = [
    SentencePair("tatoeba", "Where is the station?", "Où est la gare ?"),
    SentencePair("tatoeba", "Tom went home.", "Tom est rentré."),
    SentencePair("tatoeba", "I know where it is.", "Je sais où c'est."),
    SentencePair("tatoeba", "Wait. Come here.", "Attends. Viens ici."),
]


def test_bare_pairs_lose_the_stop_on_both_sides() -> None:
    made = list(bare_pairs(_PAIRS * 20, share=1.0, seed=1))
    assert {pair.second.lower() for pair in made} == {"où est la gare", "tom est rentré", "je sais où c'est"}
    assert {pair.first for pair in made} >= {"where is the station", "Where is the station", "tom went home"}


def test_bare_pairs_keep_the_capital_of_a_name() -> None:
    made = {(pair.first, pair.second) for pair in bare_pairs(_PAIRS * 20, share=1.0, seed=1)}
    assert ("tom went home", "Tom est rentré") in made
    assert ("where is the station", "où est la gare") in made


def test_joined_pairs_hold_the_same_sentences_in_the_same_order() -> None:
    translations = {pair.first: pair.second for pair in _PAIRS[:3]}
    made = list(joined_pairs(_PAIRS[:3], count=30, seed=1))
    assert len(made) == 30
    for pair in made:
        order = sorted(translations, key=pair.first.find)
        sentences = [sentence for sentence in order if sentence in pair.first]
        assert len(sentences) >= 2
        assert pair.second == " ".join(translations[sentence] for sentence in sentences)
