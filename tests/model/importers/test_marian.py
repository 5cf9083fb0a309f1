import copy
import dataclasses
import json
import pickle
import shutil
import subprocess
import sys

import pytest
import safetensors.torch
import torch

from model.checkpoint import CheckpointError, describe, load_checkpoint
from model.decoding import DecodingOptions
from model.generation import forbidden_outputs, generate, translate_texts
from model.importers.marian import MarianImportError, import_marian
from model.transformer import pad_sequences
from tests.data.make_tiny_checkpoint import ENGLISH
from tests.model.importers.marian_folders import (
    EOS_ID,
    MAX_POSITIONS,
    PAD_ID,
    TAGS,
    UNK_ID,
    as_pickle,
    make_model,
    make_vocabulary,
    write_folder,
)

LANGUAGES = {"source_language": "en", "target_language": "fr"}
VOCAB_SIZE = len(make_vocabulary("source", "target"))
NUM_SOURCES = 300
MAX_TARGET_TOKENS = 24

# One name for each kind of model: what `make_model` and then `write_folder` are given.
KINDS = {
    "shared vocabulary, swish": ({}, {}),
    "separate vocabularies": ({"separate": True}, {}),
    "separate vocabularies, output not tied": ({"separate": True, "tie_word_embeddings": False}, {}),
    "deep encoder, relu": ({"encoder_layers": 4, "decoder_layers": 1, "activation_function": "relu"}, {}),
    "deep decoder, gelu": ({"encoder_layers": 1, "decoder_layers": 3, "activation_function": "gelu"}, {}),
    "no embedding scale, gelu by tanh": ({"scale_embedding": False, "activation_function": "gelu_new"}, {}),
    "padding without probability": ({"renormalize": True}, {}),
    "tags": ({"num_tags": len(TAGS)}, {"tags": TAGS}),
    "pytorch_model.bin": ({"seed": 3}, {"safe": False}),
}

# What `generate` of transformers is told, and what ours is.
SEARCHES = {
    "greedy": ({"num_beams": 1}, {}),
    "beam 4": ({"num_beams": 4}, {"beam_size": 4}),
    "beam 6, n-best, early": (
        {"num_beams": 6, "num_return_sequences": 6, "length_penalty": 0.6, "early_stopping": True},
        {"beam_size": 6, "num_hypotheses": 6, "length_penalty": 0.6, "early_stopping": True},
    ),
}
BEAM_SEARCHES = {
    f"beam {size}, length penalty {penalty}, early {early}": (
        {"num_beams": size, "num_return_sequences": 2, "length_penalty": penalty, "early_stopping": early},
        {"beam_size": size, "num_hypotheses": 2, "length_penalty": penalty, "early_stopping": early},
    )
    for size, penalty, early in [(4, 0.0, False), (4, 0.6, True), (4, 1.5, False), (6, 1.0, False), (6, 1.5, True)]
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """For a kind: their model, and our checkpoint that was made of its folder. Each is made once."""
    made = {}

    def get(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp("marian")
            model_options, folder_options = KINDS[kind]
            theirs = make_model(**model_options)
            write_folder(folder / "theirs", theirs, **folder_options)
            import_marian(folder / "theirs", folder / "ours")
            made[kind] = theirs, load_checkpoint(folder / "ours")
        return made[kind]

    return get


def make_sources(vocab_size, num_sources=NUM_SOURCES):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 16, (num_sources,), generator=generator).tolist()
    return [
        [*torch.randint(PAD_ID + 1, vocab_size, (length,), generator=generator).tolist(), EOS_ID] for length in lengths
    ]


def their_outputs(model, sources, **options):
    """For each source the hypotheses of transformers, as ours are: without start token and padding."""
    ids, mask = pad_sequences(sources, PAD_ID)
    # Ours never forces eos at the length limit; a test below is about that.
    outputs = model.generate(
        ids, attention_mask=mask, do_sample=False, **{"forced_eos_token_id": None, "max_new_tokens": 24} | options
    )
    rows = [tuple(row[: row.index(EOS_ID) + 1] if EOS_ID in row else row) for row in outputs[:, 1:].tolist()]
    num_hypotheses = len(rows) // len(sources)
    return [rows[start : start + num_hypotheses] for start in range(0, len(rows), num_hypotheses)]


def our_outputs(checkpoint, sources, **options):
    options = DecodingOptions(**{"max_target_tokens": MAX_TARGET_TOKENS} | options)
    found = generate(checkpoint.model, sources, options, max_batch_rows=4096)
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]


# --- the same numbers, the same tokens ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(imported, kind):
    theirs, checkpoint = imported(kind)
    ids, mask = pad_sequences(make_sources(theirs.config.vocab_size, 50), PAD_ID)
    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(3, theirs.config.decoder_vocab_size, (50, 20), generator=generator)
    targets[:, 0] = PAD_ID
    # In double precision: in single, rounding alone comes near the tolerance at logits of this size.
    theirs, model = copy.deepcopy(theirs).double(), copy.deepcopy(checkpoint.model).double()
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask, decoder_input_ids=targets).logits
        logits = model(ids, mask, targets)
    if kind == "padding without probability":
        assert (logits[..., PAD_ID] < -9_000).all()
        expected[..., PAD_ID] = logits[..., PAD_ID]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert expected.std() > 1.0


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_of_transformers_token_for_token(imported, kind, search):
    check_variety(check_same(*imported(kind), *SEARCHES[search]))


@pytest.mark.parametrize("search", BEAM_SEARCHES)
def test_beam_options_mean_what_they_mean_in_transformers(imported, search):
    check_same(*imported("shared vocabulary, swish"), *BEAM_SEARCHES[search])


def check_same(theirs, checkpoint, their_options, our_options):
    """Outputs are the same; returns them.

    On another processor than the one this was written on, where none differs, rounding may decide a near tie otherwise:
    2 of these 8,100 lists change when noise of 1e-5 is added to all logits. Then they have to be the same in float64.
    """
    sources = make_sources(theirs.config.vocab_size)
    expected, outputs = their_outputs(theirs, sources, **their_options), our_outputs(checkpoint, sources, **our_options)
    # By index, for pytest takes minutes to tell two long lists apart.
    differing = [index for index in range(NUM_SOURCES) if outputs[index] != expected[index]]
    assert len(outputs) == len(expected) == NUM_SOURCES
    assert len(differing) <= 2, differing
    if differing:
        exact = dataclasses.replace(checkpoint, model=copy.deepcopy(checkpoint.model).double())
        sources = [sources[index] for index in differing]
        exact_outputs = our_outputs(exact, sources, **our_options)
        assert exact_outputs == their_outputs(copy.deepcopy(theirs).double(), sources, **their_options)
    return expected


def check_variety(outputs):
    """Equal outputs prove little if they are all alike."""
    best = [hypotheses[0] for hypotheses in outputs]
    lengths = [len(tokens) for tokens in best]
    assert len(set(best)) > NUM_SOURCES / 3
    assert len(set(lengths)) > 10
    assert NUM_SOURCES / 6 < sum(tokens[-1] == EOS_ID for tokens in best) < NUM_SOURCES


def test_padding_that_is_renormalized_away_changes_beams(imported):
    """Otherwise the kind `padding without probability` would test nothing."""
    theirs, _ = imported("padding without probability")
    sources = make_sources(theirs.config.vocab_size)
    with_probability = their_outputs(theirs, sources, num_beams=4, renormalize_logits=False)
    assert their_outputs(theirs, sources, num_beams=4) != with_probability


def test_targets_that_end_by_themselves_do_not_depend_on_a_forced_eos(imported):
    """That of a usual generation_config.json, which is not forced here: it matters at the length limit alone."""
    theirs, checkpoint = imported("shared vocabulary, swish")
    sources = make_sources(theirs.config.vocab_size)
    ours = our_outputs(checkpoint, sources)
    forced = their_outputs(theirs, sources, forced_eos_token_id=EOS_ID)
    for [mine], [other] in zip(ours, forced, strict=True):
        if mine[-1] == EOS_ID:
            assert mine == other
        else:
            assert (len(mine), mine[:-1]) == (MAX_TARGET_TOKENS, other[:-1])


def test_texts_are_translated_as_by_the_pipeline_of_transformers(tmp_path):
    theirs = make_model(num_tags=len(TAGS))
    their_tokenizer = write_folder(tmp_path / "theirs", theirs, tags=TAGS)
    import_marian(tmp_path / "theirs", tmp_path / "ours")
    encoded = [their_tokenizer(f">>fra<< {text}").input_ids for text in ENGLISH]
    # As Marian itself does, and transformers does not, the unknown piece is never written.
    outputs = their_outputs(theirs, encoded, num_beams=4, bad_words_ids=[[PAD_ID], [UNK_ID]])
    expected = [their_tokenizer.decode(hypotheses[0], skip_special_tokens=True) for hypotheses in outputs]
    options = DecodingOptions(beam_size=4, max_target_tokens=MAX_TARGET_TOKENS)
    assert translate_texts(load_checkpoint(tmp_path / "ours"), ENGLISH, options) == expected
    assert len(set(expected)) > 10


def test_weights_keep_their_number_format(tmp_path):
    theirs = make_model().half()
    write_folder(tmp_path / "theirs", theirs)
    import_marian(tmp_path / "theirs", tmp_path / "ours")
    stored = safetensors.torch.load_file(tmp_path / "ours" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    assert torch.equal(stored["source_embedding.weight"], theirs.model.shared.weight)


# --- what a checkpoint says -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Folders to be copied and damaged."""
    folder = tmp_path_factory.mktemp("originals")
    write_folder(folder / "plain", make_model())
    write_folder(folder / "tags", make_model(num_tags=len(TAGS)), tags=TAGS)
    write_folder(folder / "separate", make_model(separate=True))
    return folder


@pytest.fixture
def copied(originals, tmp_path):
    return lambda kind="plain": shutil.copytree(originals / kind, tmp_path / "opus-mt-en-fr")


def edit(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def test_a_checkpoint_describes_what_was_imported(copied, tmp_path):
    folder = copied()
    (folder / "README.md").write_text("# Licence and thanks")
    edit(folder / "generation_config.json", lambda values: values.update(num_beams=6, length_penalty=0.8))
    returned = import_marian(folder, tmp_path / "models" / "en-fr")
    checkpoint = load_checkpoint(tmp_path / "models" / "en-fr")
    assert describe(tmp_path / "models" / "en-fr") == returned
    assert (checkpoint.name, checkpoint.source_language, checkpoint.target_language) == ("opus-mt-en-fr", "en", "fr")
    assert checkpoint.max_source_tokens == MAX_POSITIONS
    assert checkpoint.training == {
        "imported_from": "marian",
        "advised_decoding": {"beam_size": 6, "length_penalty": 0.8, "max_target_tokens": MAX_POSITIONS - 1},
    }
    assert (tmp_path / "models" / "en-fr" / "MODEL_CARD.md").read_text() == "# Licence and thanks"
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["en-fr"]
    assert forbidden_outputs(checkpoint.config, checkpoint.tokenizer) == (UNK_ID, PAD_ID)


def test_name_and_languages_can_be_chosen(copied, tmp_path):
    import_marian(copied(), tmp_path / "out", name="mine", source_language="en-GB", target_language="fr-CA")
    found = describe(tmp_path / "out")
    assert (found.name, found.source_language, found.target_language) == ("mine", "en-GB", "fr-CA")


def test_the_tags_of_a_vocabulary_are_recorded(copied, tmp_path):
    folder = copied("tags")
    tokenizer = json.loads(json.dumps(import_marian(folder, tmp_path / "a").to_dict()))["tokenizer"]
    assert tokenizer == {
        **{"kind": "marian", "source_model": "source.spm", "target_model": "target.spm", "vocabulary": "vocab.json"},
        **{"target_tags": ["deu", "fra", "pt_br"], "target_tag": "fra"},
    }
    assert import_marian(folder, tmp_path / "b", target_language="pt-BR").tokenizer.target_tag == "pt_br"
    assert import_marian(folder, tmp_path / "c", target_language="zh", target_tag="de").tokenizer.target_tag == "deu"
    assert import_marian(folder, tmp_path / "d", target_tag="").tokenizer.target_tag is None
    texts = [load_checkpoint(tmp_path / name).tokenizer.encode("The", "en").pieces[0] for name in "abcd"]
    assert texts == [">>fra<<", ">>pt_br<<", ">>deu<<", "▁The"]


def test_revision_changes_with_any_file_of_the_tokenizer(copied, tmp_path):
    folder = copied("separate")
    import_marian(folder, tmp_path / "out")
    revisions = {load_checkpoint(tmp_path / "out").revision}
    for name in ("vocab.json", "target_vocab.json"):
        path = tmp_path / "out" / name
        values = json.loads(path.read_text())
        first, second = list(values)[5:7]
        values[first], values[second] = values[second], values[first]
        path.write_text(json.dumps(values))
        revisions.add(load_checkpoint(tmp_path / "out").revision)
    assert len(revisions) == 3


def test_an_earlier_checkpoint_is_replaced_and_nothing_else(copied, tmp_path):
    folder = copied()
    import_marian(folder, tmp_path / "out", name="first")
    import_marian(folder, tmp_path / "out", name="second")
    assert describe(tmp_path / "out").name == "second"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(CheckpointError, match=r"holds generation_config\.json, .* which no checkpoint has"):
        import_marian(folder, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_tokenizer_of_a_checkpoint_opens_without_torch(copied, tmp_path):
    import_marian(copied("tags"), tmp_path / "out")
    code = f"""
import sys
from model.description import describe, open_tokenizer
tokenizer = open_tokenizer({str(tmp_path / "out")!r}, describe({str(tmp_path / "out")!r}))
print(tokenizer.encode("The web", "en").pieces[0], "torch" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == [">>fra<<", "False"]


def set_tokenizer(**fields):
    return lambda values: values["tokenizer"].update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            set_tokenizer(vocabulary="../vocab.json"),
            "tokenizer.vocabulary is '../vocab.json'; it must be the name of a",
        ),
        (set_tokenizer(file="x"), "they must be kind, source_model, target_model and vocabulary, and may be "),
        (lambda values: values["tokenizer"].pop("vocabulary"), "tokenizer has the fields ['kind', 'source_model', "),
        (set_tokenizer(target_tags="fra"), "tokenizer.target_tags is 'fra'; it must be a list of strings"),
        (set_tokenizer(target_tags=["fra"]), "tokenizer.target_tags is ['fra'], but vocab.json has ['deu', 'fra', "),
        (set_tokenizer(target_tag=7), "tokenizer.target_tag is 7; it must be a string"),
        (
            set_tokenizer(target_tag="spa"),
            "tokenizer.target_tag: no target-language tag for 'spa'; there are: deu, fra",
        ),
        (set_tokenizer(kind=["marian"]), "tokenizer.kind is ['marian']; it must be one of sentencepiece, marian"),
        (lambda values: values.update(max_source_tokens=0), "max_source_tokens is 0; it must be a whole number of at"),
        (lambda values: values.update(max_source_tokens=None), "max_source_tokens is None; it must be a whole number"),
    ],
)
def test_a_wrong_field_of_the_checkpoint_is_named(copied, tmp_path, change, message):
    import_marian(copied("tags"), tmp_path / "out")
    edit(tmp_path / "out" / "config.json", change)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path / "out")
    assert str(caught.value).startswith(f"{tmp_path / 'out' / 'config.json'}: ")
    assert message in str(caught.value)


# --- what cannot be imported ----------------------------------------------------------------------------------------


def error_of(folder, **options):
    """The message, with what stands before the folder's name taken away."""
    output = folder.parent / "models" / "out"
    with pytest.raises(MarianImportError) as caught:
        import_marian(folder, output, **options)
    assert not output.parent.exists()
    return str(caught.value).removeprefix(f"{folder.parent}/")


def test_a_missing_folder_is_named(tmp_path):
    assert error_of(tmp_path / "none") == "none: there is no such folder"
    (tmp_path / "file").write_text("")
    assert error_of(tmp_path / "file") == "file: not a folder"


@pytest.mark.parametrize("name", ["config.json", "source.spm", "target.spm", "vocab.json", "target_vocab.json"])
def test_a_missing_file_is_named(copied, name):
    folder = copied("separate")
    (folder / name).unlink()
    assert error_of(folder) == f"opus-mt-en-fr/{name}: cannot be read (No such file or directory)"


def test_missing_weights_are_named(copied):
    folder = copied()
    (folder / "model.safetensors").unlink()
    assert error_of(folder) == "opus-mt-en-fr: has neither model.safetensors nor pytorch_model.bin"
    (folder / "model.safetensors.index.json").write_text("{}")
    assert "weights in several files, of which model.safetensors.index.json speaks, cannot be imported" in error_of(
        folder
    )


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_a_file_that_is_no_json_object_is_named(copied, name):
    folder = copied()
    (folder / name).write_text("{")
    assert error_of(folder).startswith(f"opus-mt-en-fr/{name}: not valid JSON (")
    (folder / name).write_text("[]")
    assert error_of(folder) == f"opus-mt-en-fr/{name}: holds list, not an object"


def test_files_that_may_be_missing(copied, tmp_path):
    folder = copied()
    for name in ("generation_config.json", "tokenizer_config.json"):
        (folder / name).unlink()
    expected = "opus-mt-en-fr/tokenizer_config.json: names no target_lang; give the target language's code"
    assert error_of(folder) == expected
    assert error_of(folder, target_language="fr") == expected.replace("target", "source")
    import_marian(folder, tmp_path / "out", **LANGUAGES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": None, "encoder_layers": None}, "has no d_model, encoder_layers"),
        ({"gated_ffn": True}, "keys that are not understood, and might change the translations: gated_ffn (true)"),
        ({"quantization_config": {"bits": 4}}, 'might change the translations: quantization_config ({"bits": 4})'),
        ({"model_type": "bart"}, "model_type is 'bart'; only 'marian' can be imported"),
        ({"normalize_before": True}, "normalize_before is True; only False can be imported"),
        ({"normalize_embedding": True}, "normalize_embedding is True; only False can be imported"),
        ({"static_position_embeddings": False}, "static_position_embeddings is False; only True can be imported"),
        ({"add_final_layer_norm": True}, "add_final_layer_norm is True; only False can be imported"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder is False; only True can be imported"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads is {'0': [1]}; only {} can be imported"),
        ({"prefix": "translate: "}, 'might change the translations: prefix ("translate: ")'),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False; with share_encoder_decoder_embeddings only"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; it must be true or false"),
        ({"decoder_ffn_dim": 64}, "encoder_ffn_dim is 48 and decoder_ffn_dim is 64; only equal ones can be imported"),
        (
            {"decoder_attention_heads": 8},
            "encoder_attention_heads is 4 and decoder_attention_heads is 8; only equal ones can be imported",
        ),
        ({"num_hidden_layers": 6}, "num_hidden_layers is 6, but encoder_layers is 2"),
        ({"decoder_start_token_id": 0}, "decoder_start_token_id is 0; only pad_token_id, which is 2, can be imported"),
        ({"activation_function": "tanh"}, "activation_function is 'tanh'; it must be one of relu, swish, silu, gelu,"),
        ({"activation_function": ["relu"]}, "activation_function is ['relu']; it must be one of"),
        ({"encoder_layers": "2"}, "encoder_layers is '2'; it must be a whole number from 1"),
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0; it must be a whole number from 1"),
        ({"eos_token_id": [0]}, "eos_token_id is [0]; it must be a whole number from 0"),
        (
            {"encoder_attention_heads": 5, "decoder_attention_heads": 5},
            "in our terms, num_heads is 5; it must be a divisor of d_model (32)",
        ),
        ({"eos_token_id": 4000}, "in our terms, eos_id is 4000; it must be an id from 0 to "),
    ],
)
def test_a_setting_that_is_not_understood_is_named(copied, changes, message):
    folder = copied()
    edit(folder / "config.json", lambda values: values.update(changes))
    error = error_of(folder)
    assert error.startswith("opus-mt-en-fr/config.json: ")
    assert message in error


@pytest.mark.parametrize("has_own_file", [True, False])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bad_words_ids": [[PAD_ID], [7]]}, "bad_words_ids is [[2], [7]]; only [[2]] can be imported"),
        ({"forced_eos_token_id": 5}, "forced_eos_token_id is 5; only 0 can be imported"),
        ({"suppress_tokens": [4]}, "suppress_tokens is [4]; only [] can be imported"),
        ({"diversity_penalty": 0.5}, "diversity_penalty is 0.5; only 0.0 can be imported"),
        ({"early_stopping": "never"}, "early_stopping is 'never'; it must be of the type bool"),
        ({"num_beams": True}, "num_beams is True; it must be of the type int"),
        ({"watermarking_config": {"bias": 2}}, "might change the translations: watermarking_config"),
        ({"forced_bos_token_id": 9}, "might change the translations: forced_bos_token_id (9)"),
    ],
)
def test_a_way_of_decoding_that_is_not_understood_is_named(copied, changes, message, has_own_file):
    """Older folders have these keys in config.json; a generation_config.json hides them there."""
    folder = copied()
    if not has_own_file:
        (folder / "generation_config.json").unlink()
    name = "generation_config.json" if has_own_file else "config.json"
    edit(folder / name, lambda values: values.update(changes))
    error = error_of(folder)
    assert error.startswith(f"opus-mt-en-fr/{name}: ")
    assert message in error


@pytest.mark.parametrize("key", ["pad_token_id", "eos_token_id", "decoder_start_token_id"])
def test_ids_that_differ_between_files_are_named(copied, key):
    folder = copied()
    edit(folder / "generation_config.json", lambda values: values.update({key: 9}))
    assert f"opus-mt-en-fr/generation_config.json: {key} is 9; only " in error_of(folder)


def test_keys_of_an_old_opus_mt_folder_are_understood(copied, tmp_path):
    folder = copied()
    (folder / "generation_config.json").unlink()
    old = {
        **{"_name_or_path": "opus", "_num_labels": 3, "add_bias_logits": False, "add_final_layer_norm": False},
        **{"architectures": ["MarianMTModel"], "bad_words_ids": [[PAD_ID]], "bos_token_id": 0, "classif_dropout": 0.0},
        **{"classifier_dropout": 0.0, "extra_pos_embeddings": 58101, "force_bos_token_to_be_generated": False},
        **{"gradient_checkpointing": False, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "num_beams": 6},
        **{"max_length": 512, "normalize_before": False, "normalize_embedding": False, "num_hidden_layers": 2},
        **{"output_past": True, "static_position_embeddings": True, "torch_dtype": "float32", "prefix": None},
    }
    edit(folder / "config.json", lambda values: values.update(old))
    found = import_marian(folder, tmp_path / "out")
    assert found.training["advised_decoding"] == {"beam_size": 6, "max_target_tokens": 511}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unk_token": "<UNK>"}, "unk_token is '<UNK>'; only '<unk>' can be imported"),
        ({"pad_token": {"content": "<PAD>", "lstrip": False}}, "pad_token is '<PAD>'; only '<pad>' can be imported"),
        ({"sp_model_kwargs": {"alpha": 0.1}}, "sp_model_kwargs is {'alpha': 0.1}; only {} can be imported"),
        ({"tokenizer_class": "M2M100Tokenizer"}, "tokenizer_class is 'M2M100Tokenizer'; only 'MarianTokenizer' can"),
        ({"separate_vocabs": True}, "separate_vocabs is True, but share_encoder_decoder_embeddings is as well"),
        ({"do_lower_case": True}, "might change the translations: do_lower_case (true)"),
        ({"source_lang": 7}, "source_lang is 7; it must be a string"),
    ],
)
def test_a_tokenizer_setting_that_is_not_understood_is_named(copied, changes, message):
    folder = copied()
    edit(folder / "tokenizer_config.json", lambda values: values.update(changes))
    error = error_of(folder)
    assert error.startswith("opus-mt-en-fr/tokenizer_config.json: ")
    assert message in error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids.pop("▁the"), f"the ids of {VOCAB_SIZE - 1} pieces must be 0 to {VOCAB_SIZE - 2}, but "),
        (
            lambda ids: ids.update(extra=VOCAB_SIZE),
            f"has {VOCAB_SIZE + 1} pieces, but the model's source_vocab_size is {VOCAB_SIZE}",
        ),
        (lambda ids: ids.update(a=UNK_ID), f"must be 0 to {VOCAB_SIZE - 1}, but 'a' has 1 where 2 is due"),
        (lambda ids: ids.update(a="7"), "'a' has the id '7', not a whole number"),
        (lambda ids: ids.update({"unk": ids.pop("<unk>")}), "has no <unk>"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_named_with_both_numbers(copied, change, message):
    folder = copied()
    edit(folder / "vocab.json", change)
    error = error_of(folder)
    assert "opus-mt-en-fr/vocab.json: " in error
    assert message in error


def test_a_target_vocabulary_that_does_not_fit_is_named_with_both_numbers(copied):
    folder = copied("separate")
    size = len(json.loads((folder / "target_vocab.json").read_text()))
    edit(folder / "target_vocab.json", lambda ids: ids.pop(list(ids)[-1]))
    expected = f"opus-mt-en-fr/target_vocab.json: has {size - 1} pieces, but the model's target_vocab_size is {size}"
    assert error_of(folder) == expected


def test_a_padding_with_another_id_is_named_with_both_ids(copied):
    folder = copied()
    edit(folder / "vocab.json", lambda ids: ids.update({"<pad>": ids["▁the"], "▁the": ids["<pad>"]}))
    assert "vocab.json: its pad_id is " in error_of(folder)
    assert error_of(folder).endswith(", but the model's is 2")


@pytest.mark.parametrize("name", ["source.spm", "target.spm"])
def test_a_damaged_sentencepiece_model_is_named(copied, name):
    folder = copied()
    (folder / name).write_bytes(b"nothing of the kind")
    assert f"opus-mt-en-fr/{name}: damaged, or not a SentencePiece model" in error_of(folder)


def test_a_target_language_without_a_tag_is_an_error_that_lists_those_there_are(copied):
    folder = copied("tags")
    message = "no target-language tag for {}; there are: deu, fra, pt_br"
    assert error_of(folder, target_language="es") == f"opus-mt-en-fr/vocab.json: {message.format(repr('es'))}"
    assert error_of(folder, target_tag="pt") == f"opus-mt-en-fr/vocab.json: {message.format(repr('pt'))}"


def test_a_tag_for_a_model_without_any_is_an_error(copied):
    expected = "opus-mt-en-fr/vocab.json: no target-language tag for 'fra'; the vocabulary has no tags"
    assert error_of(copied(), target_tag="fra") == expected


# --- weights that do not fit ----------------------------------------------------------------------------------------

FC1, QUERY = "model.encoder.layers.0.fc1.weight", "model.decoder.layers.1.encoder_attn.q_proj.bias"


def rename(tensors, old, new):
    tensors[new] = tensors.pop(old)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(FC1), f"missing tensor(s) {FC1}"),
        (lambda tensors: tensors.pop("final_logits_bias"), "missing tensor(s) final_logits_bias"),
        (lambda tensors: tensors.pop("model.shared.weight"), "missing tensor(s) model.shared.weight"),
        (lambda tensors: tensors.update(extra=torch.zeros(1)), "unexpected tensor(s) extra"),
        (
            lambda tensors: tensors.update({FC1: torch.zeros(48, 30)}),
            f"tensor {FC1} has shape (48, 30); the configuration asks for (48, 32)",
        ),
        (
            lambda tensors: tensors.update({QUERY: torch.zeros(64)}),
            f"tensor {QUERY} has shape (64,); the configuration asks for (32,)",
        ),
        (
            lambda tensors: tensors.update(final_logits_bias=torch.zeros(VOCAB_SIZE)),
            f"tensor final_logits_bias has shape ({VOCAB_SIZE},); the configuration asks for (1, {VOCAB_SIZE})",
        ),
        (lambda tensors: tensors.update({FC1: tensors[FC1].to(torch.int8)}), "holds torch.int8, not floating-point"),
        (lambda tensors: tensors[FC1].__setitem__((0, 0), torch.nan), f"tensor {FC1} holds NaN or infinity"),
        (
            lambda tensors: tensors.update({"lm_head.weight": tensors["model.shared.weight"] + 1}),
            f"model.shared.weight of shape ({VOCAB_SIZE}, 32) and lm_head.weight of shape ({VOCAB_SIZE}, 32) differ",
        ),
        (
            lambda tensors: tensors.update({"model.encoder.embed_positions.weight": torch.zeros(64, 32)}),
            "tensor model.encoder.embed_positions.weight of shape (64, 32) does not hold Marian's sinusoids",
        ),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(copied, change, message):
    folder = copied()
    tensors = safetensors.torch.load((folder / "model.safetensors").read_bytes())
    change(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    error = error_of(folder)
    assert error.startswith("opus-mt-en-fr/model.safetensors: ")
    assert message in error


@pytest.mark.parametrize("kept", ["lm_head.weight", "model.decoder.embed_tokens.weight"])
def test_a_tied_weight_may_have_any_of_its_names(copied, tmp_path, kept):
    folder = copied()
    import_marian(folder, tmp_path / "first")
    tensors = safetensors.torch.load((folder / "model.safetensors").read_bytes())
    rename(tensors, "model.shared.weight", kept)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    import_marian(folder, tmp_path / "second")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "second")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("length", [0, 5, 1000, -1])
def test_truncated_weights_are_refused(copied, name, length):
    folder = copied()
    if name == "pytorch_model.bin":
        as_pickle(folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:length])
    assert error_of(folder).startswith(f"opus-mt-en-fr/{name}: ")


class Trap:
    def __reduce__(self):
        return exec, ("import builtins; builtins.trap_was_sprung = True",)


def test_code_in_a_pickle_is_refused_and_never_run(copied):
    folder = copied()
    (folder / "model.safetensors").unlink()
    torch.save({"model.shared.weight": Trap()}, folder / "pytorch_model.bin", pickle_module=pickle)
    assert "pytorch_model.bin: damaged, or holds more than weights" in error_of(folder)
    assert not hasattr(__import__("builtins"), "trap_was_sprung")
    torch.save([torch.zeros(3)], folder / "pytorch_model.bin")
    assert "holds something else than tensors by name" in error_of(folder)
