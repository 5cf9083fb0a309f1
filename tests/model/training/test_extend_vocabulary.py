"""A trained model with more pieces in its vocabulary."""

from pathlib import Path

import torch

from model.checkpoint import load_checkpoint, save_checkpoint
from model.config import TransformerConfig
from model.tokenizer import MASK_CHARACTERS, Tokenizer, train_tokenizer
from model.training.extend_vocabulary import extend_vocabulary, misleading_words
from model.transformer import Transformer

_LINES = [
    "the plan is good and the men went on the train to town",
    "an old plan and a new plan for the old town",
    "the station master said that it is not time to go to town",
] * 30


def _checkpoint(folder: Path) -> Tokenizer:
    folder.mkdir()
    tokenizer = train_tokenizer(_LINES, folder.with_suffix(".model"), vocab_size=292)
    config = TransformerConfig(
        source_vocab_size=292, target_vocab_size=292, d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1,
        num_decoder_layers=1, pad_id=0, eos_id=3, decoder_start_id=2,
    )  # fmt: skip
    model = Transformer(config, seed=3)
    save_checkpoint(
        folder, model, folder.with_suffix(".model"), name="t", source_language="en", target_language="fr", training={}
    )
    return tokenizer


def test_the_old_ids_and_weights_stay_and_the_new_pieces_start_as_means(tmp_path: Path) -> None:
    old_tokenizer = _checkpoint(tmp_path / "old")
    extend_vocabulary(tmp_path / "old", tmp_path / "new", ["plant"])
    old, new = load_checkpoint(tmp_path / "old"), load_checkpoint(tmp_path / "new")
    assert isinstance(new.tokenizer, Tokenizer)
    assert new.tokenizer.vocab_size == 292 + len(MASK_CHARACTERS) + 1
    assert [new.tokenizer.piece(i) for i in range(292)] == [old_tokenizer.piece(i) for i in range(292)]

    parts = old_tokenizer.encode_ids("plant", "en")
    assert len(parts) > 1
    (plant,) = new.tokenizer.encode_ids("plant", "en")
    before, after = (checkpoint.model.state_dict() for checkpoint in (old, new))
    assert set(before) == set(after)
    for name, weight in after.items():
        torch.testing.assert_close(weight[: len(before[name])], before[name], rtol=0, atol=0)
        if weight.shape != before[name].shape:
            torch.testing.assert_close(
                weight[plant], before[name][parts].mean(dim=0), rtol=0, atol=1e-3
            )  # float16 on disk


def test_a_mask_character_is_one_piece_and_comes_back(tmp_path: Path) -> None:
    _checkpoint(tmp_path / "old")
    extend_vocabulary(tmp_path / "old", tmp_path / "new", [])
    tokenizer = load_checkpoint(tmp_path / "new").tokenizer
    text = f"the {MASK_CHARACTERS[3]}, plan{MASK_CHARACTERS[0]}"
    pieces = tokenizer.encode(text, "en").pieces
    assert MASK_CHARACTERS[3] in pieces
    assert MASK_CHARACTERS[0] in pieces
    assert tokenizer.decode(tokenizer.encode(text, "en").ids) == text


class _Pieces:
    """A tokenizer that knows a few pieces, the longest first."""

    pieces = ("plan", "two", "la", "che", "a", "t", "s")

    def encode_ids(self, text: str, language: str) -> list[int]:
        ids = []
        while text:
            ids.append(next(i for i, piece in enumerate(self.pieces) if text.startswith(piece)))
            text = text.removeprefix(self.pieces[ids[-1]])
        return ids

    def decode(self, ids: list[int]) -> str:
        return "".join(self.pieces[i] for i in ids)


def test_misleading_words_begin_with_a_common_word_and_are_no_inflection() -> None:
    texts = ["a plan"] * 9 + ["a plant"] * 3 + ["two plans"] * 3 + ["la planche"] * 3
    assert misleading_words(texts, "en", _Pieces(), least=3, common=9) == ["planche", "plant"]
    assert misleading_words(texts, "en", _Pieces(), least=4, common=9) == []
    assert misleading_words(texts, "fr", _Pieces(), least=3, common=9) == ["planche"]
    assert misleading_words(texts, "en", _Pieces(), least=3, common=10) == []
