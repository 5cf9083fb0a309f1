from typer.testing import CliRunner

from model.checkpoint import load_checkpoint
from service.cli import app
from tests.model.importers.marian_folders import TAGS, make_model, write_folder


def run(*arguments):
    return CliRunner().invoke(app, ["import", *map(str, arguments)], env={"COLUMNS": "200"})


def test_help_teaches_with_an_example():
    result = run("--help")
    assert result.exit_code == 0
    assert "Example: gossamer import" in result.output


def test_a_folder_becomes_a_checkpoint(tmp_path):
    write_folder(tmp_path / "opus", make_model(num_tags=len(TAGS)), tags=TAGS)
    names = ("--name", "mine", "--source", "en-GB", "--target", "xx", "--target-tag", "de")
    result = run(tmp_path / "opus", "--output", tmp_path / "out", *names)
    assert result.exit_code == 0
    assert result.output == f"{tmp_path / 'out'} is now the model mine, en-GB to xx\n"
    checkpoint = load_checkpoint(tmp_path / "out")
    assert (checkpoint.name, checkpoint.source_language, checkpoint.target_language) == ("mine", "en-GB", "xx")
    assert checkpoint.tokenizer.target_tag == "deu"


def test_what_cannot_be_imported_is_named_with_status_2(tmp_path):
    folder = tmp_path / "opus"
    write_folder(folder, make_model(normalize_before=True))
    result = run(folder, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert f"gossamer: {folder / 'config.json'}: normalize_before is True; only False can be imported" in result.output
    assert not (tmp_path / "out").exists()
    assert run(tmp_path / "none", "--output", tmp_path / "out").exit_code == 2
