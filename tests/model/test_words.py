from pathlib import Path

import pytest

from model.tokenizer import Tokenizer
from model.words import Word, decode_with_spans, group_words, source_text, split_words

TOKENIZER = Tokenizer(Path(__file__).parents[1] / "data" / "tiny_checkpoint" / "tokenizer.model")

TEXTS = {
    "plain": "The spider moves.",
    "accents": "Été là-bas, où l'eau n'est pas salée !",
    "combining marks": "e\u0301te\u0301 n\u0303 a\u20dd",
    "CJK": "我们去 東京へ。",
    "emoji": "a👩‍👩‍👧b 👍🏽👍🏽 ❤️ 🇫🇷🇩🇪 1️⃣",
    "RTL": "שלום, עולם! مرحبا بالعالم",
    "Hindi": "नमस्ते दुनिया",
    "lone mark": "a ▁ b▁",
    "digits": "3.5 at 10:30, 1/2 ...",
}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  \t", []),
        ("Don't stop.", ["Don't", "stop", "."]),
        ("I\u2019m here", ["I\u2019m", "here"]),
        ("l'eau qu'elle aujourd'hui", ["l'", "eau", "qu'", "elle", "aujourd'hui"]),
        ("L'«ami» jusqu'à", ["L'", "«", "ami", "»", "jusqu'", "à"]),
        ("the dogs' bowl", ["the", "dogs", "'", "bowl"]),
        ("easy-to-read - well", ["easy-to-read", "-", "well"]),
        ("Pourriez-vous ?", ["Pourriez-vous", "?"]),
        ("3.5 at 10:30, 1,000.", ["3.5", "at", "10:30", ",", "1,000", "."]),
        ("wait... what?!", ["wait", "...", "what", "?", "!"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("我们去東京", ["我", "们", "去", "東", "京"]),
        ("か\u3099x", ["か\u3099", "x"]),
        ("a👩‍👩‍👧b👍🏽", ["a", "👩‍👩‍👧", "b", "👍🏽"]),
        ("🇫🇷🇩🇪🇫", ["🇫🇷", "🇩🇪", "🇫"]),
        ("❤️❤ 😀😀", ["❤️", "❤", "😀", "😀"]),
        ("שלום, עולם", ["שלום", ",", "עולם"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("snake_case x", ["snake_case", "x"]),
        (" \u0301", ["\u0301"]),
    ],
)
def test_words_are_cut_where_people_cut_them(text, words):
    assert [text[start:end] for start, end in split_words(text)] == words


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_piece_is_in_exactly_one_word(text):
    encoded = source_text(TOKENIZER.encode(text, "fr", add_eos=True))
    words = encoded.words()
    assert sorted(piece for word in words for piece in word.pieces) == list(range(len(encoded.pieces)))
    assert [word.pieces[0] for word in words] == sorted(word.pieces[0] for word in words)
    assert [word.is_special for word in words] == [False] * (len(words) - 1) + [True]
    assert "".join(encoded.text[slice(*word.span)] for word in words) == "".join(encoded.text.split())


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_a_model_wrote_has_the_spans_that_encoding_gives(text):
    encoding = TOKENIZER.encode(text, "fr", add_eos=True)
    decoded = decode_with_spans(TOKENIZER, encoding.ids)
    assert decoded.text == TOKENIZER.decode(encoding.ids) == encoding.normalized.text
    assert decoded.spans == encoding.spans
    assert decoded.pieces == encoding.pieces
    assert decoded.is_special == source_text(encoding).is_special
    assert decoded.words() == source_text(encoding).words()


def test_bytes_that_form_no_character_stand_for_one_replacement():
    ids = TOKENIZER.encode("😀", "fr").ids
    broken = decode_with_spans(TOKENIZER, ids[:-1])
    assert broken.text == TOKENIZER.decode(ids[:-1]) == "\ufffd"
    assert set(broken.spans[1:]) == {(0, 1)}
    interrupted = decode_with_spans(TOKENIZER, [*ids[:-2], *TOKENIZER.encode("a", "fr").ids])
    assert interrupted.text == TOKENIZER.decode([*ids[:-2], *TOKENIZER.encode("a", "fr").ids])
    assert all(0 <= start <= end <= len(interrupted.text) for start, end in interrupted.spans)


def grouped(text, spans, special=()):
    return [word.pieces for word in group_words(text, spans, [index in special for index in range(len(spans))])]


def test_a_lone_space_goes_with_the_word_after_it_or_the_last_one():
    assert grouped("a b", [(0, 0), (0, 1), (1, 2), (2, 3)]) == [(0, 1), (2, 3)]
    assert grouped("a ", [(0, 1), (1, 2)]) == [(0, 1)]
    assert grouped("a ", [(0, 1), (1, 2), (2, 2)], special={2}) == [(0, 1), (2,)]
    assert grouped("", [(0, 0)]) == [(0,)]
    assert grouped("a", [(0, 0), (0, 0), (0, 1)], special={0}) == [(0,), (1, 2)]


def test_a_piece_over_two_words_joins_them():
    assert grouped("l'eau x", [(0, 3), (3, 5), (6, 7)]) == [(0, 1), (2,)]
    assert grouped("l'eau x", [(0, 1), (1, 3), (3, 5), (6, 7)]) == [(0, 1, 2), (3,)]
    assert group_words("l'eau x", [(0, 3), (3, 5), (6, 7)], [False] * 3)[0] == Word((0, 1), (0, 5), False)


def test_special_pieces_never_join_a_word():
    assert grouped("ab", [(0, 0), (0, 1), (1, 2), (2, 2)], special={0, 3}) == [(0,), (1, 2), (3,)]
