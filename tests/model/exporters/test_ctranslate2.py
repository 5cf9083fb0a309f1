import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from model.description import CheckpointError
from model.exporters.ctranslate2 import QUANTIZATIONS, check_exportable, export_ctranslate2
from model.generation import forbidden_outputs, generate
from service.cli import QuantizationName, app
from service.settings import BUNDLED_MODELS
from tests.model.importers.marian_folders import make_model, write_folder
from tests.model.tiny import tiny_config

ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="exporting needs the extra peers: pip install 'gossamer[peers]'"
)

FOLDER = BUNDLED_MODELS / "en-fr"
SENTENCES = Path(__file__).resolve().parents[2] / "data" / "everyday.en-fr.tsv"


def english(count):
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        return [row[0] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)][:count]


def translate_with_both(folder, exported, texts, **options):
    """Greedy, in float32 on one thread: our ids and CTranslate2's pieces as ids, ends of sentences left out."""
    checkpoint = load_checkpoint(folder)
    tokenizer, language = checkpoint.tokenizer, checkpoint.source_language
    encodings = [tokenizer.encode(text, language, add_eos=True) for text in texts]
    ours = generate(
        checkpoint.model,
        [encoding.ids for encoding in encodings],
        DecodingOptions(max_target_tokens=64, **options),
        forbidden_ids=forbidden_outputs(checkpoint.config, tokenizer),
    )
    translator = ctranslate2.Translator(str(exported), compute_type="float32", inter_threads=1, intra_threads=1)
    theirs = translator.translate_batch(
        [list(encoding.pieces) for encoding in encodings], beam_size=1, max_batch_size=32,
        max_decoding_length=64, min_decoding_length=0,
    )  # fmt: skip
    ids = {tokenizer.piece(token_id): token_id for token_id in range(tokenizer.vocab_size)}
    return (
        [list(hypotheses[0].tokens_without_eos) for hypotheses in ours],
        [[ids[piece] for piece in result.hypotheses[0]] for result in theirs],
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    output = tmp_path_factory.mktemp("exported") / "en-fr"
    result = CliRunner().invoke(
        app, ["export", "--model", "en-fr", "--ctranslate2", str(output)], env={"COLUMNS": "200"}
    )
    assert result.exit_code == 0, result.output
    assert result.output == f"{output} is now en-fr, en to fr, for CTranslate2\n"
    return output


def test_the_bundled_model_translates_100_sentences_to_the_same_tokens(exported):
    ours, theirs = translate_with_both(FOLDER, exported, english(100))
    assert len(ours) == 100
    assert theirs == ours


def test_the_tokenizer_lies_beside_the_model(exported):
    assert (exported / "tokenizer.model").read_bytes() == (FOLDER / "tokenizer.model").read_bytes()


@pytest.mark.parametrize(
    "variation",
    [{}, {"activation_function": "relu", "scale_embedding": False}, {"separate": True}],
    ids=["post-norm, swish, halves, output bias", "relu, no embedding scale", "separate vocabularies"],
)
def test_imported_models_write_the_same_tokens(tmp_path, variation):
    from model.importers.marian import import_marian

    write_folder(tmp_path / "opus", make_model(**variation))
    import_marian(tmp_path / "opus", tmp_path / "ours", name="a", source_language="en", target_language="fr")
    export_ctranslate2(tmp_path / "ours", tmp_path / "exported")
    ours, theirs = translate_with_both(tmp_path / "ours", tmp_path / "exported", english(20))
    assert theirs == ours
    assert sum(map(len, ours)) > 20  # random weights, but something is written


def test_what_ctranslate2_cannot_compute_is_refused_by_name():
    check_exportable(tiny_config(), FOLDER)
    with pytest.raises(CheckpointError, match="positions is 'rotary'; only sinusoidal and learned"):
        check_exportable(tiny_config(positions="rotary"), FOLDER)
    with pytest.raises(CheckpointError, match="final_norm is False with norm 'pre'"):
        check_exportable(tiny_config(norm="pre"), FOLDER)


def test_nothing_is_written_over_what_is_there(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    result = CliRunner().invoke(
        app, ["export", "--model", "en-fr", "--ctranslate2", str(tmp_path)], env={"COLUMNS": "200"}
    )
    assert result.exit_code == 2
    assert f"gossamer: {tmp_path}: is there already" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_weight_format_can_be_chosen(tmp_path, exported):
    export_ctranslate2(FOLDER, tmp_path / "int8", quantization="int8")
    small, large = ((folder / "model.bin").stat().st_size for folder in (tmp_path / "int8", exported))
    assert small < 0.3 * large
    assert set(QUANTIZATIONS) == {name.value for name in QuantizationName}
