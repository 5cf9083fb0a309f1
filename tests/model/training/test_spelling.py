import pytest

from model.training.spelling import other_spellings

COUNTS = {
    "neighbor": 150.0, "neighbour": 5.0, "apologize": 12.0, "meter": 9.0, "pajamas": 4.0, "harbour": 6.0, "harbor": 1.0,
    "called": 90.0, "surprised": 40.0, "traveled": 8.0, "filing": 9.0, "filling": 3.0, "doctor": 30.0, "theater": 2.0,
    "theatre": 2.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("neighbour", "neighbor"),
        ("apologise", "apologize"),
        ("metre", "meter"),
        ("pyjamas", "pajamas"),
        ("travelled", "traveled"),
        ("harbor", "harbour"),
    ],
)
def test_a_word_is_written_as_the_corpus_has_it_more_often(word, other):
    assert other_spellings(COUNTS)[word] == other


@pytest.mark.parametrize("word", ["caled", "surprized", "filling", "doctour", "theatre", "neighbor"])
def test_other_words_and_even_counts_stay(word):
    assert word not in other_spellings(COUNTS)
