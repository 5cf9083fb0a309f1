"""Pairs that teach a model to copy mask pieces."""

from model.tokenizer import MASK_CHARACTERS
from model.training.data import SentencePair
from model.training.kept import masked_pairs, shared_spans


def _pair(first: str, second: str) -> SentencePair:
    return SentencePair("tatoeba", first, second)


def _masks(text: str) -> list[str]:
    return sorted(char for char in text if char in MASK_CHARACTERS)


def test_shared_spans_are_names_numbers_and_identifiers_of_both_sides() -> None:
    pair = _pair("Call get_user() in Boston at 10:30.", "Appelez get_user() à Boston à 10:30.")
    assert shared_spans(pair) == ["get_user()", "Boston", "10:30"]


def test_a_word_that_only_starts_the_sentence_is_no_name() -> None:
    assert shared_spans(_pair("Message me.", "Message pour moi.")) == []


def test_a_span_that_stands_twice_is_left_alone() -> None:
    # Which of the two would be which on the other side?
    assert shared_spans(_pair("I know Tom and Tom.", "Je connais Tom et Tom.")) == []


def test_both_sides_hold_the_same_masks_and_the_span_is_gone() -> None:
    pairs = [_pair("I saw Boston in 2013.", "J'ai vu Boston en 2013.")] * 50
    made = list(masked_pairs(pairs, share=0.0, seed=1))
    assert len(made) == 50
    for pair in made:
        assert _masks(pair.first) == _masks(pair.second) != []
        assert ("Boston" in pair.first) == ("Boston" in pair.second)
        assert ("2013" in pair.first) == ("2013" in pair.second)


def test_added_masks_keep_the_sentence_whole() -> None:
    made = list(masked_pairs([_pair("The cat sleeps.", "Le chat dort.")] * 200, share=1.0, seed=1))
    assert len(made) == 200
    for pair in made:
        assert _masks(pair.first) == _masks(pair.second) != []
        without = "".join(char for char in pair.first if char not in MASK_CHARACTERS).replace(",", " ")
        assert "".join(without.split()).lower() == "thecatsleeps."
    assert len({pair.first[-1] for pair in made}) > 2, "never at the end, or never before the stop"
