import itertools

import pytest

from model.tokenizer import MASK_CHARACTERS, Tokenizer
from model.training.beside import beside_path, write_beside
from model.training.data import DataError, SentencePair
from model.training.links import KIND, format_links, one_to_one, read_linked_pairs, token_links, word_spans

TOKENIZER = "tests/data/tiny_checkpoint/tokenizer.model"


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in word_spans(text)]


def test_words_are_cut_at_elisions_and_marks():
    assert words("Don't wait... it's 3 o'clock!") == ["Don't", "wait", "...", "it's", "3", "o'clock", "!"]
    assert words("Qu'est-ce que l'été, aujourd'hui ?") == ["Qu'", "est-ce", "que", "l'", "été", ",", "aujourd'hui", "?"]
    assert words(f"{MASK_CHARACTERS[0]} ({MASK_CHARACTERS[1]})") == [MASK_CHARACTERS[0], "(", MASK_CHARACTERS[1], ")"]


def test_a_word_with_two_links_is_linked_one_to_one_with_neither():
    assert one_to_one({(3, 1), (0, 0), (1, 2), (2, 2), (4, 4), (4, 5)}) == [(0, 0), (3, 1)]


def test_every_token_of_a_word_is_linked_to_every_token_of_its_partner():
    tokenizer = Tokenizer(TOKENIZER)
    # Two spaces and a curly apostrophe are normalised away: places count in the text as it is in the file.
    pair = SentencePair("a", "The  zebra’s plant", "La plante du zèbre 😀", ((1, 3), (2, 1)))
    source, target = tokenizer.encode(pair.first, "en"), tokenizer.encode(pair.second, "fr")
    flat = token_links(pair, source, target)

    def tokens(encoding, start: int, end: int) -> list[int]:
        return [index for index, span in enumerate(encoding.source_spans) if start <= span[0] < span[1] <= end]

    plant, plante = tokens(source, 13, 18), tokens(target, 3, 9)
    zebra, zebre = tokens(source, 5, 12), tokens(target, 13, 18)
    assert min(map(len, (plant, plante, zebra, zebre))) > 1
    expected = {*itertools.product(zebra, zebre), *itertools.product(plant, plante)}
    assert len(flat) == 2 * len(expected)
    assert set(zip(flat[0::2], flat[1::2], strict=True)) == expected


def test_a_link_to_a_word_that_is_not_there_is_an_error():
    tokenizer = Tokenizer(TOKENIZER)
    pair = SentencePair("a", "Two words", "Deux mots", ((2, 0),))
    with pytest.raises(DataError, match="link 2-0"):
        token_links(pair, tokenizer.encode(pair.first, "en"), tokenizer.encode(pair.second, "fr"))


def test_links_come_back_with_their_pairs(tmp_path):
    data = tmp_path / "x.tsv"
    data.write_text("a\tOne two\tUn deux\na\tThree\tTrois\n", "utf-8")
    write_beside(tmp_path / "links", data, KIND, [format_links({(1, 1), (0, 0)}), ""])
    assert [pair.links for pair in read_linked_pairs(data, tmp_path / "links")] == [((0, 0), (1, 1)), ()]


def test_links_of_other_data_or_damaged_ones_are_refused(tmp_path):
    data = tmp_path / "x.tsv"
    data.write_text("a\tOne two\tUn deux\n", "utf-8")
    with pytest.raises(DataError, match="no such file"):
        list(read_linked_pairs(data, tmp_path))
    write_beside(tmp_path, data, KIND, ["0-0 1"])
    with pytest.raises(DataError, match="line 1"):
        list(read_linked_pairs(data, tmp_path))
    data.write_text("a\tOne three\tUn trois\n", "utf-8")
    with pytest.raises(DataError, match="make it again"):
        list(read_linked_pairs(data, tmp_path))
    path = beside_path(tmp_path, data, KIND)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"damaged|make it again"):
        list(read_linked_pairs(data, tmp_path))
