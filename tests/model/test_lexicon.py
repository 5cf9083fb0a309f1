import gzip

import pytest

from model.description import CheckpointError
from model.lexicon import LEXICON_FILE, Lexicon, open_lexicon, parts_of_words
from service.settings import BUNDLED_MODELS

LEXICON = Lexicon(frozenset({"chicago", "łódź"}), frozenset({"monday", "hello"}))
FULL = Lexicon(
    LEXICON.names, LEXICON.translated, frozenset({"bonjour", "été"}), {"summer": ("été",), "hi": ("bonjour", "salut")},
    {"colour": "color"},
)  # fmt: skip


def test_a_lexicon_is_read_as_it_was_written(tmp_path):
    (tmp_path / LEXICON_FILE).write_bytes(LEXICON.dump("Words of a file.\nIts licence."))
    assert open_lexicon(tmp_path) == LEXICON
    assert LEXICON.is_name("Łódź") and not LEXICON.is_name("Monday")
    assert LEXICON.is_translated("Monday") and not LEXICON.is_translated("Chicago")


def test_all_its_lists_are_read_as_they_were_written(tmp_path):
    (tmp_path / LEXICON_FILE).write_bytes(FULL.dump("x"))
    assert open_lexicon(tmp_path) == FULL


def test_a_file_of_before_there_were_translations_is_read(tmp_path):
    text = gzip.decompress(LEXICON.dump("x")).decode()
    (tmp_path / LEXICON_FILE).write_bytes(gzip.compress(text.partition("[written]")[0].encode()))
    assert open_lexicon(tmp_path) == LEXICON


def test_the_words_of_a_text_are_counted_without_apostrophes_and_hyphens():
    assert parts_of_words("L'eau tiède, demi-tour 12x !") == ["l", "eau", "tiède", "demi", "tour", "x"]


def test_the_same_words_are_the_same_bytes():
    turned = Lexicon(frozenset({"łódź", "chicago"}), frozenset({"hello", "monday"}))
    assert turned.dump("x") == LEXICON.dump("x")


def test_a_checkpoint_need_not_have_one(tmp_path):
    assert open_lexicon(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"words", gzip.compress(b"chicago\n"), LEXICON.dump("x")[:-9]],
    ids=[
        "empty",
        "no-archive",
        "another",
        "cut-off",
    ],  # all processes must name it alike, and an archive holds the time
)
def test_something_else_is_refused_by_its_path(tmp_path, content):
    (tmp_path / LEXICON_FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match=LEXICON_FILE):
        open_lexicon(tmp_path)


def test_the_bundled_one_says_where_it_comes_from_and_is_small():
    path = BUNDLED_MODELS / "en-fr" / LEXICON_FILE
    content = gzip.decompress(path.read_bytes()).decode()
    assert content.startswith("# ") and "licence" in content.partition("[names]")[0]
    assert path.stat().st_size < 600_000


def test_the_bundled_one_knows_what_everyday_words_become():
    lexicon = open_lexicon(BUNDLED_MODELS / "en-fr")
    assert lexicon.translations["mushrooms"] == ("champignons",)
    assert lexicon.spellings["neighbour"] == "neighbor"
    assert "voisin" in lexicon.written and "neignager" not in lexicon.written
