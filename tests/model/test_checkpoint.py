import json
import shutil
import subprocess
import sys
import time

import pytest
import safetensors.torch
import torch

import model.checkpoint
from model.checkpoint import CheckpointError, describe, load_checkpoint, save_checkpoint
from model.description import advised_decoding
from model.linear import Linear, has_int8_kernels
from model.transformer import Transformer
from tests.data.make_tiny_checkpoint import FOLDER
from tests.model.tiny import VARIATIONS, forward, tiny_config

VOCAB_SIZE = 400
NAMES = {"name": "tiny", "source_language": "en", "target_language": "fr"}
SOURCE, TARGET = [270, 300, 399, 3], [2, 310, 261]


def make_model(**changes):
    sizes = {"source_vocab_size": VOCAB_SIZE, "target_vocab_size": VOCAB_SIZE}
    return Transformer(tiny_config(**(changes | sizes)), seed=1).eval()


def save(folder, model, **options):
    save_checkpoint(folder, model, FOLDER / "tokenizer.model", **(NAMES | options))
    return folder


@pytest.fixture
def folder(tmp_path):
    """A copy of the frozen checkpoint, to be damaged."""
    return shutil.copytree(FOLDER, tmp_path / "tiny")


def edit_config(folder, change):
    values = json.loads((folder / "config.json").read_text())
    change(values)
    (folder / "config.json").write_text(json.dumps(values))


def edit_tensors(folder, change):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    change(tensors)
    # Removed first: the tensors that were read may still lie in the file.
    content = safetensors.torch.save(tensors)
    (folder / "model.safetensors").write_bytes(content)


def error_of(folder):
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    return str(caught.value)


# --- round trip -----------------------------------------------------------------------------------------------------

# The tokenizer starts decoders with another id than Marian's.
SAVED = {name: changes for name, changes in VARIATIONS.items() if "decoder_start_id" not in changes}


@pytest.mark.parametrize("variation", SAVED)
def test_what_was_saved_in_float32_is_loaded_bit_for_bit(tmp_path, variation):
    model = make_model(**SAVED[variation])
    loaded = load_checkpoint(save(tmp_path / "saved", model, dtype=torch.float32)).model
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)
    assert torch.equal(forward(loaded, SOURCE, TARGET), forward(model, SOURCE, TARGET))
    assert loaded.num_parameters() == model.num_parameters()


def test_a_loaded_checkpoint_is_ready_to_translate(tmp_path):
    facts = {"steps": 1200, "data": {"tatoeba": 0.8}, "note": "é"}
    model = make_model()
    checkpoint = load_checkpoint(save(tmp_path / "a" / "b", model.train(), training=facts, model_card="# Tiny\n"))
    assert (checkpoint.name, checkpoint.source_language, checkpoint.target_language) == ("tiny", "en", "fr")
    assert checkpoint.config == model.config == checkpoint.model.config
    assert checkpoint.training == facts
    assert checkpoint.tokenizer.vocab_size == VOCAB_SIZE
    assert not any(module.training for module in checkpoint.model.modules())
    assert not any(weight.requires_grad for weight in checkpoint.model.parameters())
    assert {weight.dtype for weight in checkpoint.model.parameters()} == {torch.float32}
    assert (tmp_path / "a" / "b" / "MODEL_CARD.md").read_text() == "# Tiny\n"


def test_tied_weights_are_stored_once_and_tied_again(tmp_path):
    folder = save(tmp_path / "saved", make_model())
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    assert {"target_embedding.weight", "output.weight"}.isdisjoint(stored)
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    model = load_checkpoint(folder).model
    assert model.source_embedding.weight is model.target_embedding.weight is model.output.weight


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("computed", [torch.float32, torch.bfloat16])
def test_any_number_format_on_disk_and_in_memory(tmp_path, stored, computed):
    model = make_model()
    loaded = load_checkpoint(save(tmp_path / "saved", model, dtype=stored), dtype=computed).model
    assert {weight.dtype for weight in loaded.parameters()} == {computed}
    logits, expected = forward(loaded, SOURCE, TARGET).float(), forward(model, SOURCE, TARGET)
    tolerance = 0.2 if torch.bfloat16 in (stored, computed) else 0.01
    torch.testing.assert_close(logits, expected, atol=tolerance, rtol=0)


def test_loading_draws_no_weights_and_is_fast(tmp_path, monkeypatch):
    folder = save(tmp_path / "saved", make_model(d_model=256, num_heads=8, d_ff=1024, num_encoder_layers=6))
    state = torch.get_rng_state()
    monkeypatch.setattr(Transformer, "_initialise", lambda *_: pytest.fail("weights were drawn"))
    start = time.process_time()
    checkpoint = load_checkpoint(folder)
    assert time.process_time() - start < 2.0  # 0.1 s here; the first of a process once took 2 s more than that
    assert checkpoint.model.num_parameters() > 7_000_000
    assert torch.equal(torch.get_rng_state(), state)


def test_positions_of_a_loaded_model_reach_beyond_the_first_table(tmp_path):
    model = make_model()
    loaded = load_checkpoint(save(tmp_path / "saved", model, dtype=torch.float32)).model
    source = [5] * 400 + [3]
    torch.testing.assert_close(forward(loaded, source, TARGET), forward(model, source, TARGET), atol=1e-5, rtol=0)


# --- revision -------------------------------------------------------------------------------------------------------


def test_the_revision_changes_with_any_file_and_with_nothing_else(folder, tmp_path):
    revision = load_checkpoint(FOLDER).revision
    assert len(revision) == 16
    assert load_checkpoint(folder).revision == revision
    (folder / "MODEL_CARD.md").write_text("Words.")
    assert load_checkpoint(folder).revision == revision
    edit_tensors(folder, lambda tensors: tensors["encoder.norm.bias"][0].add_(0.5))
    weights_changed = load_checkpoint(folder).revision
    edit_config(folder, lambda values: values.update(name="other"))
    config_changed = load_checkpoint(folder).revision
    assert len({revision, weights_changed, config_changed}) == 3


# --- what is wrong with a checkpoint --------------------------------------------------------------------------------


def test_a_missing_folder_is_named(tmp_path):
    assert error_of(tmp_path / "none") == f"checkpoint {tmp_path / 'none'}: there is no such folder"
    (tmp_path / "file").write_text("")
    assert error_of(tmp_path / "file") == f"checkpoint {tmp_path / 'file'}: not a folder"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.model"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    assert error_of(folder) == f"{folder / name}: cannot be read (No such file or directory)"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b'{"format": 1,}'])
def test_a_config_that_is_no_json_is_refused(folder, content):
    (folder / "config.json").write_bytes(content)
    assert f"{folder / 'config.json'}: not valid JSON" in error_of(folder)


def set_model(name, value):
    return lambda values: values["model"].update({name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values.update(format=2), "format is 2; this version reads format 1"),
        (lambda values: values.update(format="1"), "format is '1'; this version reads format 1"),
        (lambda values: values.pop("format"), "missing field(s) format"),
        (lambda values: [values.pop("name"), values.pop("model")], "missing field(s) name, model"),
        (lambda values: values.update(colour="red"), "unknown field(s) colour; known are format, name"),
        (lambda values: values.update(name=""), "name is ''; it must be a string"),
        (lambda values: values.update(source_language=7), "source_language is 7; it must be a string"),
        (lambda values: values.update(model=[1]), "model is [1]; it must be an object"),
        (lambda values: values.update(training="long"), "training is 'long'; it must be an object"),
        (lambda values: values.update(training={"advised_decoding": 4}), "training.advised_decoding must be an object"),
        (
            lambda values: values.update(training={"advised_decoding": {"beam_size": 99}}),
            "training.advised_decoding: beam_size is 99; allowed is an integer from 1 to 16",
        ),
        (lambda values: values.update(tokenizer={"kind": "bpe", "file": "x"}), "tokenizer.kind is 'bpe'; it must be"),
        (lambda values: values.update(tokenizer={"kind": "sentencepiece"}), "tokenizer has the fields ['kind']"),
        (
            lambda values: values.update(tokenizer={"kind": "sentencepiece", "file": "../tokenizer.model"}),
            "tokenizer.file is '../tokenizer.model'; it must be the name of a file in the same folder",
        ),
        (set_model("d_model", 17), "model: num_heads is 4; it must be a divisor of d_model (17)"),
        (set_model("heads", 4), "model: unknown field(s) heads"),
        (lambda values: values["model"].pop("target_vocab_size"), "model: missing field(s) target_vocab_size"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(folder, change, message):
    edit_config(folder, change)
    error = error_of(folder)
    assert error.startswith(f"{folder / 'config.json'}: {message}")
    with pytest.raises(CheckpointError) as caught:
        describe(folder)
    assert str(caught.value) == error


def test_a_config_that_is_no_object_is_refused(folder):
    (folder / "config.json").write_text("[]")
    assert error_of(folder) == f"{folder / 'config.json'}: holds list, not an object"


# Of those whose special ids are the tokenizer's.
@pytest.mark.parametrize("name", [name for name in VARIATIONS if "decoder_start_id" not in VARIATIONS[name]])
def test_a_model_can_become_int8_while_it_is_read(tmp_path, name):
    if not has_int8_kernels():
        pytest.skip("this processor has no int8 kernels in torch, and ours are not compiled")
    folder = save(tmp_path / "checkpoint", make_model(**VARIATIONS[name]))
    afterwards = load_checkpoint(folder).model
    afterwards.quantize()
    read_so = load_checkpoint(folder, precision="int8").model
    assert read_so.precision == "int8" and read_so.cache_page_tokens == afterwards.cache_page_tokens
    assert torch.equal(forward(read_so, SOURCE, TARGET), forward(afterwards, SOURCE, TARGET))


def test_a_matrix_becomes_int8_before_the_next_one_is_read(folder, monkeypatch):
    events = []
    read, quantize = model.checkpoint._read_tensor, Linear.quantize
    monkeypatch.setattr(
        model.checkpoint, "_read_tensor", lambda path, name, *rest: events.append(name) or read(path, name, *rest)
    )
    monkeypatch.setattr(Linear, "quantize", lambda linear: events.append("int8") or quantize(linear))
    load_checkpoint(folder, precision="int8")
    matrices = [name for name in events if name.endswith("weight") and not ("norm" in name or "embedding" in name)]
    assert len(matrices) > 10
    for name in matrices:
        place = events.index(name)
        assert "int8" in events[place + 1 : place + 3], (name, events[place : place + 4])  # its bias comes between


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_a_precision_is_that_of_set_precision(folder, precision):
    afterwards = load_checkpoint(folder).model
    afterwards.set_precision(precision)
    assert load_checkpoint(folder, precision=precision).model.precision == afterwards.precision


def test_an_open_tokenizer_is_not_opened_again(folder):
    opened = load_checkpoint(folder).tokenizer
    assert load_checkpoint(folder, tokenizer=opened).tokenizer is opened


def test_missing_and_unexpected_tensors_are_named(folder):
    weights = folder / "model.safetensors"
    edit_tensors(folder, lambda tensors: tensors.pop("decoder.layers.1.ffn.inner.bias"))
    assert error_of(folder) == f"{weights}: missing tensor(s) decoder.layers.1.ffn.inner.bias"
    shutil.copy(FOLDER / "model.safetensors", weights)
    edit_tensors(folder, lambda tensors: tensors.update(extra=torch.zeros(1)))
    assert error_of(folder) == f"{weights}: unexpected tensor(s) extra"
    shutil.copy(FOLDER / "model.safetensors", weights)
    edit_config(folder, set_model("num_encoder_layers", 3))
    assert "missing tensor(s) encoder.layers.2.attention.qkv.weight, " in error_of(folder)
    assert "and 7 more" in error_of(folder)


def test_a_misshaped_tensor_is_named_with_both_shapes(folder):
    edit_tensors(folder, lambda tensors: tensors.update({"encoder.norm.weight": torch.ones(24)}))
    expected = "tensor encoder.norm.weight has shape (24,); the configuration asks for (16,)"
    assert error_of(folder) == f"{folder / 'model.safetensors'}: {expected}"


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.ones(16, dtype=torch.int8), "holds torch.int8, not floating-point numbers"),
        (torch.tensor([1.0] * 15 + [float("nan")]), "holds NaN or infinity"),
    ],
)
def test_a_tensor_without_usable_numbers_is_named(folder, tensor, message):
    edit_tensors(folder, lambda tensors: tensors.update({"encoder.norm.weight": tensor}))
    assert error_of(folder) == f"{folder / 'model.safetensors'}: tensor encoder.norm.weight {message}"


@pytest.mark.parametrize("length", [0, 4, 100, 20_000, -1])
def test_truncated_weights_are_refused(folder, length):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:length])
    assert error_of(folder).startswith(f"{weights}: truncated or not a safetensors file")


def test_weights_of_another_kind_of_file_are_refused(folder):
    (folder / "model.safetensors").write_bytes(b"PK\x03\x04" + bytes(1000))
    assert "truncated or not a safetensors file" in error_of(folder)


def test_weights_that_change_while_they_are_read_are_refused(folder, monkeypatch):
    read = model.checkpoint._read_tensor

    def read_and_replace(path, name, *options):
        if name == "encoder.norm.weight":
            shutil.copy(FOLDER / "model.safetensors", path)
        return read(path, name, *options)

    monkeypatch.setattr(model.checkpoint, "_read_tensor", read_and_replace)
    assert error_of(folder) == f"{folder / 'model.safetensors'}: was changed while it was read"


def test_a_damaged_tokenizer_is_named(folder):
    (folder / "tokenizer.model").write_bytes(b"nothing of the kind")
    assert str(folder / "tokenizer.model") in error_of(folder)


@pytest.mark.parametrize("field", ["source_vocab_size", "target_vocab_size"])
def test_a_tokenizer_of_another_size_is_refused_with_both_sizes(folder, field):
    edit_config(folder, lambda values: values["model"].update({"share_embeddings": False, field: 500}))
    assert error_of(folder) == f"{folder / 'tokenizer.model'}: has 400 pieces, but the model's {field} is 500"


@pytest.mark.parametrize(("field", "value", "given"), [("pad_id", 9, 0), ("eos_id", 4, 3), ("decoder_start_id", 0, 2)])
def test_a_tokenizer_with_other_special_ids_is_refused_with_both_ids(folder, field, value, given):
    edit_config(folder, set_model(field, value))
    assert error_of(folder) == f"{folder / 'tokenizer.model'}: its {field} is {given}, but the model's is {value}"


# --- saving ---------------------------------------------------------------------------------------------------------


def test_an_earlier_checkpoint_is_replaced_whole(tmp_path):
    folder = save(tmp_path / "saved", make_model(), model_card="about the first")
    save(folder, make_model(), name="second")
    assert describe(folder).name == "second"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.model"]
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize("failing", ["_write", "_put_in_place"])
def test_an_interrupted_save_leaves_the_earlier_checkpoint_and_nothing_else(tmp_path, monkeypatch, failing):
    folder = save(tmp_path / "saved", make_model(), name="first")

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(model.checkpoint, failing, interrupt)
        save(folder, make_model(), name="second")
    assert load_checkpoint(folder).name == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"holds thesis\.tex, which no checkpoint has; nothing was replaced"):
        save(tmp_path, make_model())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(CheckpointError, match="is a file, and was left alone"):
        save(tmp_path / "thesis.tex", make_model())


def test_an_empty_folder_becomes_the_checkpoint(tmp_path):
    assert load_checkpoint(save(tmp_path, make_model())).name == "tiny"


def test_weights_too_large_for_the_format_are_refused_by_name(tmp_path):
    broken = make_model()
    with torch.no_grad():
        broken.encoder.layers[0].ffn.inner.weight[3, 3] = 1e5
    with pytest.raises(CheckpointError, match=r"encoder\.layers\.0\.ffn\.inner\.weight .* not finite in torch.float16"):
        save(tmp_path / "saved", broken)
    assert list(tmp_path.iterdir()) == []
    load_checkpoint(save(tmp_path / "saved", broken, dtype=torch.bfloat16))


def test_a_quantized_model_is_not_saved(tmp_path):
    quantized = make_model()
    quantized.encoder.layers[0].ffn.inner.weight = None  # as Linear.quantize does
    with pytest.raises(CheckpointError, match=r"no longer holds encoder\.layers\.0\.ffn\.inner\.weight"):
        save(tmp_path / "saved", quantized)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_does_not_fit_the_tokenizer_is_not_saved(tmp_path):
    model = Transformer(tiny_config(), seed=0)
    with pytest.raises(CheckpointError, match="has 400 pieces, but the model's source_vocab_size is 29"):
        save(tmp_path / "saved", model)
    with pytest.raises(CheckpointError, match="source_language is ''"):
        save(tmp_path / "saved", make_model(), source_language="")
    assert list(tmp_path.iterdir()) == []


# --- description ----------------------------------------------------------------------------------------------------


def test_describe_reads_the_config_alone_and_needs_no_torch(folder):
    for path in folder.iterdir():
        if path.name != "config.json":
            path.unlink()
    code = f"""
import sys
from model.description import describe
found = describe({str(folder)!r})
print(found.name, found.source_language, found.target_language, found.config.d_model, "torch" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["tiny", "en", "fr", "16", "False"]


def test_advice_is_what_makes_translations_better_and_nothing_else():
    advice = {"beam_size": 6, "length_penalty": 0.8, "max_target_tokens": 511, "do_sample": True, "num_hypotheses": 3}
    assert advised_decoding({"advised_decoding": advice}) == {"beam_size": 6, "length_penalty": 0.8}
    assert advised_decoding({}) == {}


def test_reading_leaves_torch_s_threads_as_they_were(folder):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        load_checkpoint(folder, precision="int8" if has_int8_kernels() else None)
        assert torch.get_num_threads() == 2
        edit_tensors(folder, lambda tensors: next(iter(tensors.values())).fill_(float("nan")))
        with pytest.raises(CheckpointError):
            load_checkpoint(folder)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
