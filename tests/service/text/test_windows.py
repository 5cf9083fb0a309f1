import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.text.windows import CHARACTERS_PER_TOKEN, window_spans


def count_words(text):
    return len(text.split())


def split(text, max_tokens, count=count_words):
    return [text[start:end] for start, end in window_spans(text, max_tokens, count)]


def test_clause_punctuation_is_the_best_break():
    text = "one two three four five, six seven eight nine ten eleven twelve"
    assert split(text, 8) == ["one two three four five, ", "six seven eight nine ten eleven twelve"]


def test_white_space_is_the_next_best_and_the_last_two_windows_are_balanced():
    assert split("a b c d e f g h i", 8) == ["a b c d ", "e f g h i"]
    assert split("aaaa bbbb cccc dddd", 15, len) == ["aaaa bbbb ", "cccc dddd"]


def test_without_any_space_the_break_is_anywhere():
    assert split("a" * 25, 10, len) == ["a" * 10, "a" * 7, "a" * 8]


@pytest.mark.parametrize("character", ["e\u0301", "👍🏽", "👨\u200d👩\u200d👧", "❤\ufe0f"])
def test_a_break_anywhere_keeps_characters_whole(character):
    parts = split(character * 40, 16, len)
    assert len(parts) > 1
    assert all(part == character * (len(part) // len(character)) for part in parts)


def test_windows_are_bounded_in_characters_where_nothing_makes_tokens():
    parts = split("\u200b" * 1000, 10, lambda text: 0)
    assert max(map(len, parts)) == 10 * CHARACTERS_PER_TOKEN


def test_one_character_is_a_window_even_if_it_does_not_fit():
    assert split("ab", 1, lambda text: 5 * len(text)) == ["a", "b"]


def test_the_number_of_counts_grows_with_the_length_only():
    counted = []

    def count(text):
        counted.append(len(text))
        return len(text.encode()) // 3 + 1

    window_spans("some words, and more of them; " * 2_000, 32, count)
    assert sum(counted) < 20 * 60_000


@settings(deadline=None)  # machines are shared
@given(st.text(st.characters() | st.sampled_from(" ,.;\u0301\u200d")), st.integers(1, 20))
def test_windows_cover_any_text_and_fit(text, max_tokens):
    parts = split(text, max_tokens, len)
    assert "".join(parts) == text
    assert all(0 < len(part.strip()) <= max_tokens or not part.strip() for part in parts)
