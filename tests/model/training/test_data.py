import gzip
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from model.tokenizer import train_tokenizer
from model.training.data import Corpus, DataError, SentencePair, TokenLists, encode_corpus, read_pairs, select_pairs
from tests.model.training.fixtures import sentence_pairs, write_corpus

SHARED = Path(__file__).parents[4] / "shared" / "data"


def test_plain_and_gzipped_files_give_the_same_pairs(tmp_path):
    text = "tatoeba\tHello.\tBonjour.\nstories\tA cat.\tUn chat.\n"
    (tmp_path / "plain.tsv").write_text(text, encoding="utf-8")
    with gzip.open(tmp_path / "packed.tsv.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    pairs = list(read_pairs(tmp_path / "plain.tsv"))
    assert pairs == [SentencePair("tatoeba", "Hello.", "Bonjour."), SentencePair("stories", "A cat.", "Un chat.")]
    assert list(read_pairs(tmp_path / "packed.tsv.gz")) == pairs


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"tatoeba\tonly two\n", "line 2: 2 columns"),
        (b"a\tb\tc\td\n", "line 2: 4 columns"),
        (b"tatoeba\t \tvide\n", "line 2: column 2 is empty"),
        (b"tatoeba\tcaf\xe9\tcaf\xe9\n", "line 2: not UTF-8 at byte 11"),
        (b"\n", "line 2: 1 columns"),
    ],
)
def test_a_damaged_line_is_named_with_file_and_number(tmp_path, line, complaint):
    path = tmp_path / "bad.tsv"
    path.write_bytes(b"tatoeba\tHello.\tBonjour.\n" + line)
    with pytest.raises(DataError, match=re.escape(f"bad.tsv, {complaint}")):
        list(read_pairs(path))


def test_a_truncated_gzip_file_is_named(tmp_path):
    path = tmp_path / "cut.tsv.gz"
    whole = gzip.compress(b"tatoeba\tHello.\tBonjour.\n" * 10_000)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cut.tsv.gz: unreadable after line"):
        list(read_pairs(path))
    with pytest.raises(DataError, match="absent.tsv: no such file"):
        list(read_pairs(tmp_path / "absent.tsv"))


def test_only_weighted_sources_are_read_and_an_absent_one_is_an_error(tmp_path):
    write_corpus(tmp_path)
    path = tmp_path / "train.tsv.gz"
    names = {pair.source_name for pair in select_pairs([path], {"tatoeba": 1.0, "stories": 0.0}, reverse=False)}
    assert names == {"tatoeba"}
    with pytest.raises(DataError, match="has the source novels"):
        list(select_pairs([path], {"tatoeba": 1.0, "novels": 0.5}, reverse=False))


def test_reverse_swaps_the_sides(tmp_path):
    write_corpus(tmp_path)
    weights = {"tatoeba": 1.0}
    forward = list(select_pairs([tmp_path / "train.tsv.gz"], weights, reverse=False))
    backward = list(select_pairs([tmp_path / "train.tsv.gz"], weights, reverse=True))
    assert [(pair.second, pair.first) for pair in backward] == [(pair.first, pair.second) for pair in forward]


def test_encoding_ends_sources_drops_long_pairs_and_keeps_the_text(tmp_path):
    texts = [text for pair in sentence_pairs() for text in pair]
    tokenizer = train_tokenizer(texts, tmp_path / "tokenizer.model", vocab_size=320)
    pairs = [SentencePair("a", en, fr) for en, fr in sentence_pairs()] + [SentencePair("b", "x " * 200, "y")]
    corpus = encode_corpus(iter(pairs), {"a": 0.5, "b": 1.0}, tokenizer, ("en", "fr"), max_tokens=64)
    assert len(corpus) == len(sentence_pairs())
    assert corpus.num_dropped == 1
    assert corpus.counts == {"a": 75}
    for index, (english, french) in enumerate(sentence_pairs()):
        source = corpus.sources[index].tolist()
        assert source[-1] == tokenizer.eos_id
        assert tokenizer.decode(source[:-1]) == english
        assert tokenizer.decode(corpus.targets[index].tolist()) == french


def _corpus(weights: list[float]) -> Corpus:
    lists = TokenLists.from_lists([[5, 3]] * len(weights))
    return Corpus(lists, lists, np.array(weights), 0, {})


def test_an_epoch_holds_each_pair_as_often_as_its_weight_says():
    corpus = _corpus([1.0] * 100 + [0.25] * 4_000 + [2.5] * 1_000)
    counts = np.bincount(corpus.sample_epoch(seed=1, epoch=0), minlength=len(corpus))
    assert (counts[:100] == 1).all()
    assert set(counts[100:4_100]) == {0, 1}
    assert abs(counts[100:4_100].mean() - 0.25) < 0.03
    assert set(counts[4_100:]) == {2, 3}
    assert abs(counts[4_100:].mean() - 2.5) < 0.06


def test_epochs_differ_and_repeat_by_seed():
    corpus = _corpus([0.5] * 1_000)
    first = corpus.sample_epoch(seed=1, epoch=0)
    assert np.array_equal(first, corpus.sample_epoch(seed=1, epoch=0))
    assert not np.array_equal(first, corpus.sample_epoch(seed=1, epoch=1))
    assert not np.array_equal(first, corpus.sample_epoch(seed=2, epoch=0))


def _key(text: str) -> str:
    """Lower case, without accents and punctuation, the form in which held-out pairs were kept apart."""
    letters = unicodedata.normalize("NFKD", text.lower())
    return " ".join(
        "".join(char if char.isalnum() else " " for char in letters if not unicodedata.combining(char)).split()
    )


def _held_out() -> Iterator[SentencePair]:
    for path in sorted((SHARED / "test").glob("*.tsv.gz")):
        yield from read_pairs(path)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared corpus is not beside this checkout")
def test_no_training_pair_shares_a_side_with_a_held_out_pair():
    english, french = set(), set()
    for pair in _held_out():
        english.add(_key(pair.first))
        french.add(_key(pair.second))
    assert len(english) > 20_000
    shared = [
        pair
        for pair in read_pairs(SHARED / "train.en-fr.tsv.gz")
        if _key(pair.first) in english or _key(pair.second) in french
    ]
    assert shared == []
