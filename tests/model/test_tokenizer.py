import random
import subprocess
import sys

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model.normalizer import normalize
from model.tokenizer import TextTokenizer, Tokenizer, TokenizerModelError, train_tokenizer
from tests.model.test_normalizer import FAMILY, FRANCE, HINDI, SCOTLAND, any_language, any_text

VOCAB_SIZE = 600

ENGLISH = """the cat sees a red house behind that garden and every morning my brother walks slowly to his little school
where children sing loudly while teachers write difficult words about history science music travel weather friendship
nobody knows whether those seventeen travellers will return before winter because the mountain road remains closed
please remember tomorrow's meeting; don't forget your umbrella, passport or keys! what happened yesterday? nothing:
""".split()
FRENCH = """le chat voit une maison rouge derrière ce jardin et chaque matin mon frère marche lentement vers sa école
où les enfants chantent fort pendant que les professeurs écrivent des mots difficiles sur l'histoire la musique la météo
personne ne sait si ces dix-sept voyageurs reviendront avant l'hiver car la route de montagne reste fermée
n'oubliez pas demain votre parapluie, passeport ou vos clés ! qu'est-ce qui s'est passé hier ? rien : « ça va »
""".split()


SYLLABLES = "ba con dre el fi gra hu in jo ka lon mer nu ol pre qui ro sta tion vé wa zo".split()


def make_lines():
    """Lines of English, French and made-up words: a vocabulary of 600 needs more of them than are written above."""
    rng = random.Random(7)
    invented = ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))) for _ in range(500)]
    return [
        " ".join(words[:2] * 2 + rng.choices(words, k=8) + rng.choices(invented, k=4)) + f" {rng.randint(0, 9999)}."
        for _ in range(250)
        for words in (ENGLISH, FRENCH)
    ]


def train(path, **options):
    """A SentencePiece model as `train_tokenizer` makes it, but for `options`."""
    right = {
        **{"normalization_rule_name": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
        **{"byte_fallback": True, "pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "vocab_size": VOCAB_SIZE},
    }
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(" " + line for line in make_lines()),
            model_writer=file,
            minloglevel=2,
            num_threads=1,
            **(right | options),
        )
    return path


@pytest.fixture(scope="session")
def model_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tiny.model"
    train_tokenizer(make_lines(), path, vocab_size=VOCAB_SIZE, num_threads=1)
    return path


@pytest.fixture(scope="session")
def tokenizer(model_path) -> TextTokenizer:
    return Tokenizer(model_path)


# Encoding


def test_words_are_pieces_with_their_places_in_both_texts(tokenizer):
    encoding = tokenizer.encode("  le\u200b  le…", "fr")
    assert encoding.normalized.text == "le le..."
    assert encoding.pieces == ("▁le", "▁le", ".", ".", ".")
    assert encoding.spans == ((0, 2), (3, 5), (5, 6), (6, 7), (7, 8))
    assert encoding.source_spans == ((2, 4), (7, 9), (9, 10), (9, 10), (9, 10))
    assert encoding.ids == tuple(
        next(i for i in range(tokenizer.vocab_size) if tokenizer.piece(i) == p) for p in encoding.pieces
    )


def test_a_word_has_the_same_pieces_first_and_later(tokenizer):
    first = tokenizer.encode("garden", "en").ids
    assert tokenizer.encode("garden garden", "en").ids == first + first


def test_bytes_of_a_character_share_its_span(tokenizer):
    encoding = tokenizer.encode("  中\U0001f577é", "en")
    spelled = [span for piece, span in zip(encoding.pieces, encoding.spans, strict=True) if piece.startswith("<0x")]
    assert spelled == [(0, 1)] * 3 + [(1, 2)] * 4
    assert encoding.source_spans[1:8] == ((2, 3),) * 3 + ((3, 4),) * 4
    assert encoding.pieces[0] == "▁"
    assert encoding.spans[0] == (0, 0)
    assert encoding.source_spans[0] == (2, 2)


def test_a_space_alone_has_the_span_of_the_space(tokenizer):
    encoding = tokenizer.encode("le \n中", "fr")
    assert encoding.pieces[:2] == ("▁le", "▁")
    assert encoding.spans[1] == (2, 3)
    assert encoding.source_spans[1] == (2, 4)


def test_a_literal_space_mark_survives(tokenizer):
    encoding = tokenizer.encode("a▁b ▁▁", "en")
    assert tokenizer.decode(encoding.ids) == "a▁b ▁▁"
    assert [p for p in encoding.pieces if p.startswith("<")] == ["<0xE2>", "<0x96>", "<0x81>"] * 3


def test_training_sees_the_first_word_of_a_line_as_encoding_does(tmp_path):
    tokenizer = train_tokenizer(["bonjour", "merci"] * 50, tmp_path / "words.model", vocab_size=272, num_threads=1)
    assert tokenizer.encode("merci", "fr").pieces == ("▁merci",)


def test_digits_are_single_pieces(tokenizer):
    assert tokenizer.encode("1984", "en").pieces == ("▁", "1", "9", "8", "4")


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b\xad\x00"])
def test_text_without_a_visible_character_gives_no_ids(tokenizer, text):
    assert tokenizer.encode(text, "en").ids == ()
    assert tokenizer.encode(text, "en", add_eos=True).ids == (tokenizer.eos_id,)
    assert tokenizer.decode([]) == ""


def test_end_of_sentence_is_added_on_request_at_the_end_of_the_text(tokenizer):
    plain, ended = tokenizer.encode(" the cat ", "en"), tokenizer.encode(" the cat ", "en", add_eos=True)
    assert ended.ids == (*plain.ids, tokenizer.eos_id)
    assert ended.pieces[-1] == "</s>"
    assert ended.spans[-1] == (7, 7)
    assert ended.source_spans[-1] == (8, 8)
    assert tokenizer.decode(ended.ids) == "the cat"


@settings(max_examples=1000, deadline=None)
@given(any_text, any_language)
@example("</s><s><unk><pad><0x0A>", "en")
@example(f"{FAMILY} {SCOTLAND}{FRANCE} {HINDI} שלום مرحبا 中文 e\u0301\u0323", "fr")
@example("a\ud800\x00▁ \u2581", "en")
def test_every_text_comes_back_and_never_gives_a_special_id(tokenizer, text, language):
    encoding = tokenizer.encode(text, language)
    assert tokenizer.decode(encoding.ids) == normalize(text, language).text
    assert not any(map(tokenizer.is_special, encoding.ids))
    assert tokenizer.encode_ids(text, language) == list(encoding.ids)


@settings(max_examples=500, deadline=None)
@given(any_text, any_language)
def test_spans_tile_the_text_but_for_spaces(tokenizer, text, language):
    encoding = tokenizer.encode(text, language)
    normalized = encoding.normalized.text
    assert len(encoding.ids) == len(encoding.pieces) == len(encoding.spans) == len(encoding.source_spans)
    end_before = 0
    for piece, span in dict.fromkeys(zip(encoding.pieces, encoding.spans, strict=True)):
        start, end = span
        if piece.startswith("<0x"):
            assert end == start + 1
            assert int(piece[3:5], 16) in normalized[start:end].encode()
        else:
            assert normalized[start:end] == piece.lstrip("▁") or (start, end) == (0, 0) or piece == "▁"
        assert start >= end_before - 1
        assert normalized[end_before:start].strip() == ""
        end_before = max(end_before, end)
    assert end_before == len(normalized)
    assert list(encoding.source_spans) == sorted(encoding.source_spans)
    for (start, end), source_span in zip(encoding.spans, encoding.source_spans, strict=True):
        assert source_span == encoding.normalized.source_span(start, end)


# Decoding


def reference_decode(tokenizer, ids):
    parts = []
    for token_id in ids:
        piece = tokenizer.piece(token_id)
        if token_id == tokenizer.unk_id:
            parts.append("\ufffd".encode())
        elif piece.startswith("<0x"):
            parts.append(bytes.fromhex(piece[3:5]))
        elif not tokenizer.is_special(token_id):
            parts.append(piece.replace("▁", " ").encode())
    text = b"".join(parts).decode("utf-8", "replace")
    return text[1:] if text.startswith(" ") else text


# Half of the ids are bytes, so that characters break off in every way.
any_ids = st.lists(st.integers(0, VOCAB_SIZE - 1) | st.integers(4, 259) | st.sampled_from([230, 154, 133, 0, 1, 2, 3]))


@settings(max_examples=1000, deadline=None)
@given(any_ids)
def test_any_ids_decode_at_once_and_as_a_stream_alike(tokenizer, ids):
    text = tokenizer.decode(ids)
    assert text == reference_decode(tokenizer, ids)
    stream = tokenizer.decode_stream()
    parts = [stream.push(token_id) for token_id in ids]
    assert "".join(parts) + stream.finish() == text


@settings(max_examples=300, deadline=None)
@given(any_text, any_language)
def test_stream_gives_out_whole_characters_as_soon_as_they_are_known(tokenizer, text, language):
    encoding = tokenizer.encode(text, language)
    stream = tokenizer.decode_stream()
    given_out = ""
    for index, token_id in enumerate(encoding.ids):
        given_out += stream.push(token_id)
        last_of_character = encoding.spans[index] not in encoding.spans[index + 1 : index + 2]
        end = encoding.spans[index][1] if last_of_character else encoding.spans[index][0]
        assert given_out == encoding.normalized.text[:end]
    assert stream.finish() == ""


def test_a_stream_that_ends_inside_a_character_says_so(tokenizer):
    stream = tokenizer.decode_stream()
    ids = tokenizer.encode("a中", "en").ids
    assert "".join(map(stream.push, ids[:-1])) == "a"
    assert stream.finish() == "\ufffd"


def test_only_one_space_is_taken_from_the_start(tokenizer):
    space = tokenizer.encode("中", "en").ids[0]
    assert tokenizer.piece(space) == "▁"
    assert tokenizer.decode([space, space, *tokenizer.encode("the cat", "en").ids]) == "  the cat"


def test_control_ids_are_skipped_and_unknown_is_visible(tokenizer):
    the, cat = tokenizer.encode("the", "en").ids, tokenizer.encode("cat", "en").ids
    ids = [tokenizer.bos_id, *the, tokenizer.pad_id, *cat, tokenizer.unk_id, tokenizer.eos_id]
    assert tokenizer.decode(ids) == "the cat\ufffd"


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE, 10**9])
def test_an_id_outside_the_vocabulary_is_refused_by_name(tokenizer, token_id):
    for use in (
        *(tokenizer.piece, tokenizer.is_special, tokenizer.decode_stream().push),
        lambda i: tokenizer.decode([5, i]),
    ):
        with pytest.raises(ValueError, match=rf"id {token_id} .* {VOCAB_SIZE} "):
            use(token_id)


# Vocabulary and model files


def test_special_ids_and_pieces(tokenizer):
    special = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    assert {name: getattr(tokenizer, name) for name in special} == special
    assert [tokenizer.piece(i) for i in range(5)] == ["<pad>", "<unk>", "<s>", "</s>", "<0x00>"]
    assert [i for i in range(tokenizer.vocab_size) if tokenizer.is_special(i)] == [0, 1, 2, 3]
    assert tokenizer.vocab_size == VOCAB_SIZE


def test_training_is_repeatable_silent_and_shows_in_the_revision(tokenizer, model_path, tmp_path):
    code = (
        "import sys; from model.tokenizer import train_tokenizer; from tests.model.test_tokenizer import make_lines;"
        f"train_tokenizer(make_lines(), sys.argv[1], vocab_size={VOCAB_SIZE}, num_threads=1)"
    )
    again = tmp_path / "again.model"
    done = subprocess.run([sys.executable, "-c", code, again], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
    assert again.read_bytes() == model_path.read_bytes()
    assert Tokenizer(again).revision == tokenizer.revision
    other = train_tokenizer(make_lines()[:300], tmp_path / "other.model", vocab_size=VOCAB_SIZE - 50, num_threads=1)
    assert other.revision != tokenizer.revision


def test_revision_changes_with_the_normalizer(tokenizer, model_path, monkeypatch):
    monkeypatch.setattr("model.tokenizer.NORMALIZER_VERSION", "next")
    assert Tokenizer(model_path).revision != tokenizer.revision


def test_a_vocabulary_that_the_lines_cannot_fill_is_refused(tmp_path):
    with pytest.raises(ValueError, match="vocabulary of 5000 pieces"):
        train_tokenizer(make_lines()[:20], tmp_path / "x.model", vocab_size=5000)
    assert not (tmp_path / "x.model").exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TokenizerModelError, match=r"absent\.model.*No such file"):
        Tokenizer(tmp_path / "absent.model")
    with pytest.raises(TokenizerModelError, match="cannot be read"):
        Tokenizer(tmp_path)


def test_damaged_files_are_named(model_path, tmp_path):
    whole = model_path.read_bytes()
    broken_piece = whole.replace("▁".encode(), b"\xe2\x96\xff")
    damaged = tmp_path / "damaged.model"
    for content in (b"", b"not a model", whole[:3], whole[: len(whole) // 2], whole[:-200], broken_piece):
        damaged.write_bytes(content)
        with pytest.raises(TokenizerModelError, match=r"damaged\.model"):
            Tokenizer(damaged)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2}, r"\(-1, 0, 1, 2\), not \(0, 1, 2, 3\)"),
        ({"byte_fallback": False, "vocab_size": 400}, "no byte fallback"),
        ({"normalization_rule_name": "nmt_nfkc"}, "changes text"),
        ({"add_dummy_prefix": True}, "changes text"),
        ({"remove_extra_whitespaces": True}, "changes text"),
    ],
)
def test_a_model_made_in_another_way_is_refused_with_the_reason(tmp_path, options, reason):
    path = train(tmp_path / "other.model", **options)
    with pytest.raises(TokenizerModelError, match=rf"other\.model: .*{reason}"):
        Tokenizer(path)


def test_the_same_recipe_is_accepted(tmp_path):
    assert Tokenizer(train(tmp_path / "same.model")).vocab_size == VOCAB_SIZE
