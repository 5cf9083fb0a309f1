import pytest

from loadtests.texts import Texts, held_out_sentences
from model.description import describe, open_tokenizer
from service.settings import BUNDLED_MODELS
from service.text.segmenter import segment_text


@pytest.fixture(scope="module")
def tokenizer():
    folder = BUNDLED_MODELS / "en-fr"
    return open_tokenizer(folder, describe(folder))


@pytest.mark.parametrize("length", [4, 8, 33, 128, 512])
def test_a_sentence_has_exactly_so_many_tokens_and_is_one_segment(tokenizer, length):
    texts = Texts(tokenizer, "en")
    text = texts.sentence(length)
    document = segment_text(text, "en", max_tokens=length, count_tokens=texts.count)
    assert [texts.count(segment.text) for segment in document.segments] == [length]


def test_a_sentence_can_go_without_a_full_stop(tokenizer):
    texts = Texts(tokenizer, "en", full_stop="")
    text = texts.sentence(33)
    assert texts.count(text) == 33
    assert text[-1].isalpha()


@pytest.mark.parametrize("length", [8, 64, 256])
def test_sentences_have_so_many_tokens_together(tokenizer, length):
    texts = Texts(tokenizer, "en")
    text = texts.sentences(length)
    document = segment_text(text, "en", max_tokens=512, count_tokens=texts.count)
    assert sum(texts.count(segment.text) for segment in document.segments) == length
    assert len(document.segments) > length / 128


def test_the_same_seed_draws_the_same(tokenizer):
    first, second, other = (Texts(tokenizer, "en", seed=seed).sentences(64) for seed in (1, 1, 2))
    assert first == second != other


def test_held_out_sentences_are_there():
    assert len(held_out_sentences()) == 500
