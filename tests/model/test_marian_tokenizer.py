import json
import unicodedata

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model.marian_tokenizer import MarianTokenizer, UnknownTargetTag, find_tag, target_tags
from model.tokenizer import TextTokenizer, TokenizerModelError
from tests.data.make_tiny_checkpoint import ENGLISH, FRENCH
from tests.model.importers.marian_folders import (
    EOS_ID,
    PAD_ID,
    TAGS,
    UNK_ID,
    make_vocabulary,
    spm_model,
    their_tokenizer,
)
from tests.model.test_normalizer import FAMILY, FRANCE, HINDI, SCOTLAND, any_text

HARD_TEXTS = [
    *("", " ", " \n\t", "\u200b", "Hello world.", "  the  web\u3000\ufb01 \uff21 e\u0301 \t\nthe ", "a" * 500),
    *("a▁b ▁▁ ▁", "①²½ …", "\u00ad\u200bx\u200d", "zoo kite train", "Zürich 🕷️ 1984", f"{FAMILY} {SCOTLAND}{FRANCE}"),
    *("the </s> web <pad><unk>", "<s> <0xE2> <2fr>", "a \x00b\x01c\x7f", "\ufffd \ufeffBOM", "´acute `grave ¨", HINDI),
    *(
        "שלום עולם, نعم",
        "中文，日本語。한국어",
        "\u1100\u1161\u11a8",
        "ﷺ",
        "ｶﾞ",
        "ß ẞ İ ı Ǆ",
        "“the” ‘web’ — l’eau « oui »",
    ),
    *("\u2028line\u2029sep\x85nel\x0bvt\x0cff", "the \u00a0 web\u202f!", "A.B. don't 3.14 1,000.50€", " >>fra<< the"),
    *ENGLISH,
    *FRENCH,
]


def write_files(folder, *, separate=False, tags=(), **spm_options):
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(spm_model(side, **spm_options))
    sides = ("source",) if separate else ("source", "target")
    (folder / "vocab.json").write_text(json.dumps(make_vocabulary(*sides, tags=tags)))
    if separate:
        # As in a real folder the unknown piece, and all others, have ids of their own; eos and padding do not.
        pieces = list(make_vocabulary("target"))
        pieces[UNK_ID], pieces[7] = pieces[7], pieces[UNK_ID]
        (folder / "target_vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(pieces)}))
    return folder


def open_tokenizer(folder, target_tag=None, target_language="fr"):
    target = folder / "target_vocab.json"
    return MarianTokenizer(
        folder / "source.spm",
        folder / "target.spm",
        folder / "vocab.json",
        target if target.exists() else None,
        target_language=target_language,
        target_tag=target_tag,
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("tagged"), tags=TAGS)


@pytest.fixture(scope="module")
def separate(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("separate"), separate=True)


@pytest.fixture(scope="module")
def tokenizer(shared) -> TextTokenizer:
    return open_tokenizer(shared)


@pytest.fixture(scope="module")
def theirs(shared):
    return their_tokenizer(shared)


@pytest.fixture(scope="module")
def bytes_tokenizer(tmp_path_factory):
    """SentencePiece models that spell what they lack in bytes, and a vocabulary that has most of these."""
    folder = write_files(tmp_path_factory.mktemp("bytes"), vocab_size=400, byte_fallback=True)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    pieces = [processor.id_to_piece(index) for index in range(3, processor.get_piece_size())]
    names = ["</s>", "<unk>", "<pad>", "<s>", *(piece for piece in pieces if piece != "<0xE5>")]
    (folder / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(names)}))
    return open_tokenizer(folder)


def id_of(tokenizer, piece):
    return next(index for index in range(tokenizer.vocab_size) if tokenizer.piece(index) == piece)


# --- the ids of transformers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_separate", [False, True])
def test_ids_of_both_sides_are_those_of_transformers(shared, separate, is_separate):
    folder = separate if is_separate else shared
    ours, theirs = open_tokenizer(folder), their_tokenizer(folder, separate_vocabs=is_separate)
    for text in HARD_TEXTS:
        # Without the flag they also find special tokens inside a text.
        expected = theirs(text, split_special_tokens=True).input_ids
        assert list(ours.encode(text, "en", add_eos=True).ids) == expected
        expected = theirs(text_target=text, split_special_tokens=True).input_ids
        assert list(ours.encode(text, "fr", add_eos=True).ids) == expected


def test_ids_after_a_tag_are_those_of_transformers(tagged):
    ours, theirs = open_tokenizer(tagged, "fra"), their_tokenizer(tagged)
    for text in HARD_TEXTS:
        expected = theirs(f">>fra<< {text}", split_special_tokens=True).input_ids
        if len(expected) == 2:  # the tag of nothing, and eos
            expected = [EOS_ID]
        assert list(ours.encode(text, "en", add_eos=True).ids) == expected


@settings(max_examples=300, deadline=None)
@given(any_text)
def test_ids_of_any_text_are_those_of_transformers(tokenizer, theirs, text):
    text = text.encode(errors="replace").decode()  # they take no lone surrogates
    if not text.startswith(">>"):
        expected = theirs(text, split_special_tokens=True).input_ids
        assert list(tokenizer.encode(text, "en", add_eos=True).ids) == expected


def test_the_punctuation_normalizer_of_transformers_is_never_called(shared):
    """They load one where sacremoses is installed; ids would not be theirs if it were used one day."""
    theirs = their_tokenizer(shared)
    theirs.punc_normalizer = lambda text: pytest.fail("called")
    theirs("“the web” — l’eau")


def test_a_text_is_only_text(tagged):
    """Here ids differ from those of transformers: there a text can choose the target, end itself, or be padding."""
    ours, theirs = open_tokenizer(tagged, "fra"), their_tokenizer(tagged)
    deu, fra = id_of(ours, ">>deu<<"), id_of(ours, ">>fra<<")
    text = ">>deu<< the </s> web"
    assert {deu, EOS_ID} < set(theirs(text, add_special_tokens=False).input_ids)
    ids = ours.encode(text, "en").ids
    assert ids[0] == fra
    assert {deu, EOS_ID, PAD_ID}.isdisjoint(ids)


def test_a_target_of_separate_vocabularies_has_ids_of_its_own(separate):
    tokenizer = open_tokenizer(separate)
    assert (tokenizer.source_vocab_size, tokenizer.vocab_size) == (
        len(make_vocabulary("source")),
        len(make_vocabulary("target")),
    )
    assert (tokenizer.source_unk_id, tokenizer.unk_id) == (UNK_ID, 7)
    assert tokenizer.encode("語", "en").ids[-1] == UNK_ID
    assert tokenizer.encode("語", "fr").ids[-1] == 7
    assert tokenizer.encode("語", "FR").ids[-1] == 7
    assert tokenizer.piece(7) == "<unk>"


# --- places ---------------------------------------------------------------------------------------------------------


def test_words_are_pieces_with_their_places_in_both_texts(tokenizer):
    encoding = tokenizer.encode("  the\u3000 the…", "en", add_eos=True)
    assert encoding.normalized.text == "the the..."
    assert encoding.pieces == ("▁the", "▁the", ".", ".", ".", "</s>")
    assert encoding.spans == ((0, 3), (4, 7), (7, 8), (8, 9), (9, 10), (10, 10))
    assert encoding.source_spans == ((2, 5), (7, 10), (10, 11), (10, 11), (10, 11), (11, 11))


def test_what_the_vocabulary_lacks_is_one_unknown_id_with_its_place(tokenizer):
    encoding = tokenizer.encode("the 中文語 the", "en")
    assert encoding.pieces == ("▁the", "▁", "<unk>", "▁the")
    assert encoding.ids[2] == tokenizer.source_unk_id == UNK_ID
    assert tokenizer.unknown_spans(encoding) == ((4, 7),)
    assert tokenizer.unknown_spans(tokenizer.encode("the the", "en")) == ()
    # Known to the SentencePiece model, but not to the vocabulary.
    assert tokenizer.unknown_spans(tokenizer.encode("the z", "en")) == ((4, 5),)


def test_a_tag_has_an_empty_place_before_the_text(tagged):
    encoding = open_tokenizer(tagged, "pt_br").encode("  the", "en")
    assert encoding.pieces == (">>pt_br<<", "▁the")
    assert encoding.spans == ((0, 0), (0, 3))
    assert encoding.source_spans == ((2, 2), (2, 5))


def test_surrogates_have_their_places(tokenizer):
    encoding = tokenizer.encode("\ud800the \ud83d\ude00 the\udfff", "en")
    joined = tokenizer.encode("\ufffdthe \U0001f600 the\ufffd", "en")
    assert (encoding.ids, encoding.spans) == (joined.ids, joined.spans)
    spider = encoding.normalized.text.index("\U0001f600")
    assert encoding.normalized.source_span(spider, spider + 1) == (5, 7)
    assert encoding.source_spans[-1][1] in (11, 12)


@settings(max_examples=500, deadline=None)
@given(any_text)
@example("ﷺﷺ½ e\u0301\u0323 \ud800\ud83d\ude00")
@example("\x01 a\x01 \x01")
def test_spans_tile_the_text_but_for_spaces(tokenizer, text):
    encoding = tokenizer.encode(text, "en", add_eos=True)
    normalized = encoding.normalized.text
    assert len(encoding.ids) == len(encoding.pieces) == len(encoding.spans) == len(encoding.source_spans)
    end_before = 0
    for piece, (start, end) in zip(encoding.pieces, encoding.spans, strict=True):
        assert piece in ("▁", "</s>", "<unk>") or normalized[start:end] == piece.removeprefix("▁")
        assert normalized[end_before:start].strip() == ""
        assert end_before <= start <= end
        end_before = end
    assert end_before == len(normalized)
    assert list(encoding.source_spans) == sorted(encoding.source_spans)
    for (start, end), source_span in zip(encoding.spans, encoding.source_spans, strict=True):
        assert source_span == encoding.normalized.source_span(start, end)


@settings(max_examples=500, deadline=None)
@given(any_text)
def test_every_character_has_a_place_but_space_at_the_ends(tokenizer, shared, text):
    """What no place covers is what SentencePiece takes away: space before, after and between words, and controls."""
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    normalized = tokenizer.encode(text, "en").normalized
    covered = set()
    for start, end in zip(normalized.starts, normalized.ends, strict=True):
        assert start < end
        covered.update(range(start, end))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(shared / "source.spm"))
    for index in set(range(len(text))) - covered:
        assert processor.normalize(text[index]) == ""
    assert list(normalized.starts) == sorted(normalized.starts)
    assert list(normalized.ends) == sorted(normalized.ends)


def test_the_normalized_text_is_what_the_sentencepiece_model_makes_of_it(tokenizer):
    for text in HARD_TEXTS:
        expected = " ".join(unicodedata.normalize("NFKC", text).split())
        if text.isascii() and text.isprintable():
            assert tokenizer.encode(text, "en").normalized.text == expected
    # Our own normalizer would have made straight quotes of them.
    assert tokenizer.encode("“the”", "en").normalized.text == "“the”"


def test_bytes_of_a_character_share_its_place(bytes_tokenizer):
    encoding = bytes_tokenizer.encode("the 中\U0001f577 the", "en")
    assert encoding.pieces[:2] == ("▁the", "▁")
    assert encoding.pieces[2:9] == ("<0xE4>", "<0xB8>", "<0xAD>", "<0xF0>", "<0x9F>", "<0x95>", "<0xB7>")
    assert encoding.source_spans[2:] == ((4, 5),) * 3 + ((5, 6),) * 4 + ((7, 10),)
    assert bytes_tokenizer.decode(encoding.ids) == "the 中\U0001f577 the"
    stream = bytes_tokenizer.decode_stream()
    assert [stream.push(token_id) for token_id in encoding.ids] == ["the", "", "", "", " 中", "", "", "", "🕷", " the"]


def test_a_byte_that_the_vocabulary_lacks_is_unknown(bytes_tokenizer):
    encoding = bytes_tokenizer.encode("the 奈 the", "en")
    assert encoding.pieces == ("▁the", "▁", "<unk>", "<0xA5>", "<0x88>", "▁the")
    assert encoding.source_spans == ((0, 3), (3, 4), (4, 5), (4, 5), (4, 5), (6, 9))


# --- decoding -------------------------------------------------------------------------------------------------------


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_any_ids_decode_as_in_transformers(tokenizer, theirs, data):
    any_id = st.integers(0, tokenizer.vocab_size - 1) | st.just(id_of(tokenizer, "▁"))
    ids = data.draw(st.lists(any_id.filter(lambda token_id: token_id != UNK_ID)))
    text_ids = [token_id for token_id in ids if token_id not in (EOS_ID, PAD_ID)]
    # They begin a new text after each special id, and so lose the space there.
    assert tokenizer.decode(ids) == theirs.decode(text_ids, skip_special_tokens=True)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_any_ids_decode_at_once_and_as_a_stream_alike(bytes_tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, bytes_tokenizer.vocab_size - 1) | st.integers(0, 12)))
    stream = bytes_tokenizer.decode_stream()
    assert "".join(map(stream.push, ids)) + stream.finish() == bytes_tokenizer.decode(ids)


def test_targets_come_back(tokenizer):
    for text in FRENCH:
        assert tokenizer.decode(tokenizer.encode(text, "fr", add_eos=True).ids) == text


def test_a_stream_gives_space_out_with_the_word_behind_it(tokenizer):
    ids = [id_of(tokenizer, piece) for piece in ("▁", "▁", "▁the", "▁", "▁", ".", "▁", "</s>")]
    stream = tokenizer.decode_stream()
    assert [stream.push(token_id) for token_id in ids] == ["", "", "the", "", "", "  .", "", ""]
    assert stream.finish() == ""
    assert tokenizer.decode(ids) == "the  ."


def test_special_ids_stand_for_no_text(tagged, bytes_tokenizer):
    tokenizer = open_tokenizer(tagged)
    specials = [index for index in range(tokenizer.vocab_size) if tokenizer.is_special(index)]
    assert [tokenizer.piece(index) for index in specials] == ["</s>", "<unk>", "<pad>", *TAGS]
    assert tokenizer.decode(specials) == "\ufffd"
    assert (tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id, tokenizer.bos_id) == (EOS_ID, UNK_ID, PAD_ID, PAD_ID)
    assert bytes_tokenizer.is_special(id_of(bytes_tokenizer, "<s>"))  # a control piece of the SentencePiece model
    assert bytes_tokenizer.decode([id_of(bytes_tokenizer, "<s>")]) == ""


@pytest.mark.parametrize("token_id", [-1, 10_000])
def test_an_id_outside_the_vocabulary_is_refused(tokenizer, token_id):
    for use in (
        tokenizer.piece,
        tokenizer.is_special,
        lambda one: tokenizer.decode([one]),
        tokenizer.decode_stream().push,
    ):
        with pytest.raises(
            ValueError, match=f"id {token_id} is not in the vocabulary of {tokenizer.vocab_size} pieces"
        ):
            use(token_id)


# --- tags -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "language", "found"),
    [
        (["deu", "fra"], "fra", "fra"),
        (["deu", "fra"], "fr", "fra"),
        (["deu", "fra"], "FR_ca", "fra"),
        (["de", "fr"], "fra", "fr"),
        (["fra", "FR"], "fr", "FR"),
        (["por", "pt_br"], "pt-BR", "pt_br"),
        (["por", "pt_br"], "pt", "por"),
        (["por", "pt_br"], "pt-PT", "por"),
        (["srp_Cyrl", "srp_Latn"], "srp_latn", "srp_Latn"),
        (["pt_BR", "pt_br"], "pt_br", "pt_br"),
    ],
)
def test_a_tag_is_found_by_the_code_of_its_language(tags, language, found):
    assert find_tag(tags, language) == found


@pytest.mark.parametrize("language", ["zh", "srp", "f", "", "xx"])
def test_no_tag_is_guessed(language):
    with pytest.raises(UnknownTargetTag) as caught:
        find_tag(["cmn_Hans", "fra", "srp_Cyrl"], language)
    assert str(caught.value) == f"no target-language tag for {language!r}; there are: cmn_Hans, fra, srp_Cyrl"
    assert caught.value.available == ("cmn_Hans", "fra", "srp_Cyrl")


def test_tags_are_read_from_the_vocabulary():
    assert target_tags(["</s>", ">>fra<<", "▁>>", ">><<", ">>cmn_Hans<<", "▁>>deu<<"]) == ("cmn_Hans", "fra")


def test_another_target_is_another_tokenizer(tagged):
    tokenizer = open_tokenizer(tagged, "fra")
    assert tokenizer.target_tags == ("deu", "fra", "pt_br")
    assert tokenizer.target_languages == ("fr", "de", "pt_br")
    assert all(tokenizer.for_target(code).target_languages[0] == code for code in tokenizer.target_languages)
    german = tokenizer.for_target("de")
    assert [one.encode("the", "en").pieces[0] for one in (tokenizer, german)] == [">>fra<<", ">>deu<<"]
    assert tokenizer.revision != german.revision
    assert german.revision == open_tokenizer(tagged, "deu").revision
    assert german.for_target("fr").revision == tokenizer.revision
    # Targets have no tags.
    assert german.encode("le", "de").pieces[0] == tokenizer.encode("le", "fr").pieces[0] == "▁le"
    with pytest.raises(UnknownTargetTag, match="no target-language tag for 'es'; there are: deu, fra, pt_br"):
        tokenizer.for_target("es")


def test_a_tag_that_the_vocabulary_lacks_is_refused(shared, tagged):
    with pytest.raises(UnknownTargetTag, match="no target-language tag for 'spa'; there are: deu, fra, pt_br"):
        open_tokenizer(tagged, "spa")
    with pytest.raises(UnknownTargetTag, match="no target-language tag for 'fra'; the vocabulary has no tags"):
        open_tokenizer(shared, "fra")


# --- files ----------------------------------------------------------------------------------------------------------


def test_the_revision_is_that_of_the_files(shared, separate, tmp_path):
    assert open_tokenizer(shared).revision == open_tokenizer(shared).revision
    revisions = {open_tokenizer(shared).revision, open_tokenizer(separate).revision}
    for name in ("source.spm", "target.spm"):
        folder = write_files(tmp_path)
        (folder / name).write_bytes((folder / name).read_bytes() + b"\x22\x00")  # an empty field more
        revisions.add(open_tokenizer(folder).revision)
    assert len(revisions) == 4


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json", "target_vocab.json"])
def test_a_missing_or_damaged_file_is_named(tmp_path, name):
    folder = write_files(tmp_path, separate=True)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(TokenizerModelError, match=name.replace(".", r"\.")):
        open_tokenizer(folder)
    (folder / name).unlink()
    if name != "target_vocab.json":
        with pytest.raises(TokenizerModelError, match=rf"{name}: cannot be read \(No such file or directory\)"):
            open_tokenizer(folder)


def test_vocabularies_with_different_ends_are_refused(tmp_path):
    folder = write_files(tmp_path, separate=True)
    ids = json.loads((folder / "target_vocab.json").read_text())
    ids["</s>"], ids["<pad>"] = ids["<pad>"], ids["</s>"]
    (folder / "target_vocab.json").write_text(json.dumps(ids))
    with pytest.raises(
        TokenizerModelError, match=r"target_vocab.json: </s> has the id 2, but in .*vocab.json it has 0"
    ):
        open_tokenizer(folder)
