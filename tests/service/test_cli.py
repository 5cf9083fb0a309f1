import importlib
import io
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gossamer.client import Client
from model.decoding import DecodingOptions
from service.cli import app
from service.search_options import search_options
from service.settings import BUNDLED_MODELS, load_settings
from service.translate_command import Inputs, _wants_bar
from service.translator import Translator
from tests.service.test_server import Server

ROOT = Path(__file__).resolve().parents[2]
TINY = str(ROOT / "tests/data/tiny_checkpoint")


@pytest.fixture
def run(monkeypatch):
    for variable in ("GOSSAMER_CONFIG", "GOSSAMER_MODELS"):
        monkeypatch.delenv(variable, raising=False)

    def invoke(*arguments, stdin=None):
        return CliRunner().invoke(app, list(map(str, arguments)), input=stdin, env={"COLUMNS": "200"})

    return invoke


@pytest.fixture(scope="module")
def server():
    """With the same model, which must say the same."""
    server = Server("--model", TINY)
    server.wait_until_ready()
    yield server
    server.stop()


@pytest.fixture
def served(server):
    def served(text, format="text", beam_size=4):
        body = {"text": text, "format": format, "decoding": {"beam_size": beam_size}}
        status, answer = server.get("/v1/translate", body)
        assert status == 200, answer
        return answer["translations"][0]["text"]

    return served


@pytest.mark.parametrize(
    "command", [[], ["serve"], ["doctor"], ["keys"], ["keys", "create"], ["translate"], ["train"], ["evaluate"]]
)
def test_help_teaches_with_an_example(run, command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert re.search(r"Example|Start with", result.output)


def test_help_does_not_load_torch():
    code = "import sys, service.cli; sys.exit('torch' in sys.modules or 'fastapi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_module_is_the_command():
    result = subprocess.run([sys.executable, "-m", "service", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0
    assert "gossamer [OPTIONS] COMMAND" in result.stdout


# --- translate --------------------------------------------------------------------------------------------------------


def test_texts_are_translated_one_answer_a_line(run, served):
    result = run("translate", "--model", TINY, "Hello.", "The web.", "🙂")
    assert result.exit_code == 0, result.stderr
    assert result.output.splitlines() == [served("Hello."), served("The web."), "🙂"]


@pytest.mark.parametrize("arguments", [[], ["-"], ["--file", "-"]])
def test_standard_input_keeps_lines_order_and_gaps(run, served, arguments):
    hello = served("Hello.", beam_size=1)
    lines = b"Hello.\r\n\r\n  - 12:30\n" + b"7\n" * 200 + b"Hello."
    result = run("translate", "--model", TINY, "-b", "1", *arguments, stdin=lines)
    assert result.exit_code == 0
    assert result.stdout_bytes.decode() == lines.decode().replace("Hello.", hello)
    assert result.stderr == ""


def test_files_are_translated_in_order(run, tmp_path):
    for name, text in (("a", "Hello.\n"), ("b", "The web.\n")):
        (tmp_path / name).write_text(text)
    result = run("translate", "-m", TINY, "-f", str(tmp_path / "b"), "-f", str(tmp_path / "a"))
    assert result.output == run("translate", "-m", TINY, "The web.", "Hello.").output


def test_the_options_reach_the_translation(run, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "service.translate_command.translate_inputs", lambda *given, **named: calls.append((given, named))
    )
    assert run("translate", "-m", TINY, "-b", "7", "--source", "en", "--no-progress", "Hello.").exit_code == 0
    ((inputs,), named) = calls[0]
    assert inputs == Inputs(["Hello."], None, "text")
    assert named["decoding"] == {"beam_size": 7}
    assert (named["source"], named["target"], named["show_progress"]) == ("en", None, False)
    assert named["settings"].model_folders() == (Path(TINY),)


@pytest.mark.parametrize(
    ("variables", "arguments", "options"),
    [
        ({}, [], DecodingOptions(beam_size=4, beam_threshold=2.5)),
        ({"BEAM_SIZE": "2", "BEAM_THRESHOLD": "1.5"}, [], DecodingOptions(beam_size=2, beam_threshold=1.5)),
        ({"BEAM_THRESHOLD": "1.5"}, ["-b", "3"], DecodingOptions(beam_size=3, beam_threshold=1.5)),
        ({"BEAM_SIZE": "2"}, ["-b", "1"], DecodingOptions()),
    ],
)
def test_how_to_search_is_said_by_the_call_or_else_by_the_settings(run, monkeypatch, variables, arguments, options):
    for name, value in variables.items():
        monkeypatch.setenv(f"GOSSAMER_DEFAULT_{name}", value)
    jobs, translate = [], Translator.translate

    async def noted(self, job):
        jobs.append(job)
        return await translate(self, job)

    monkeypatch.setattr(Translator, "translate", noted)
    assert run("translate", "-m", TINY, *arguments, "Hello.").exit_code == 0
    assert [job.options for job in jobs] == [options]
    # As a server with these settings does it.
    given = {"beam_size": int(arguments[1])} if arguments else {}
    assert search_options(load_settings(), (jobs[0].model,), given) == options


def test_a_server_is_told_nothing_that_the_call_does_not_say(run, monkeypatch, server):
    asked, translate = [], Client.translate
    monkeypatch.setattr(
        Client, "translate", lambda *given, **named: asked.append(named["decoding"]) or translate(*given, **named)
    )
    for arguments in ([], ["-b", "2"]):
        assert run("translate", "--server", server.address, *arguments, "Hello.").exit_code == 0
    assert asked == [{}, {"beam_size": 2}]


def test_html_is_translated_as_the_server_does_it(run, served, tmp_path):
    document = "<p>Hello <b>my\n  friend</b>.</p>\r\n<pre>so\n</pre>\n"
    (tmp_path / "page.html").write_text(document, newline="")
    result = run("translate", "-m", TINY, "--html", "--file", str(tmp_path / "page.html"))
    assert result.exit_code == 0
    assert result.stdout_bytes.decode() == served(document, "html")
    piped = run("translate", "-m", TINY, "--xml", stdin=b"<r><p>Hello.</p></r>")
    assert piped.output == served("<r><p>Hello.</p></r>", "xml")


def test_a_server_translates_the_same(run, server, tmp_path):
    (tmp_path / "text").write_text("Hello.\n\n- The web.\n")
    arguments = ["--file", str(tmp_path / "text"), "--beam-size", "2"]
    local = run("translate", "-m", TINY, *arguments)
    remote = run("translate", "--server", server.address, "--target", "fr", *arguments)
    assert (remote.exit_code, remote.output) == (0, local.output)


def test_the_language_is_found_if_wanted(run):
    assert run("translate", "-m", TINY, "--source", "auto", "Where is the train station?").exit_code == 0
    result = run("translate", "-m", TINY, "--source", "auto", "Wo ist der nächste Bahnhof?")
    assert result.exit_code == 2
    assert "text looks like de" in result.stderr


def test_progress_is_shown_on_standard_error_only(run, tmp_path):
    (tmp_path / "text").write_text("Hello.\n" + "12:30\n" * 200)
    plain = run("translate", "-m", TINY, "-b", "1", "-f", str(tmp_path / "text"))
    shown = run("translate", "-m", TINY, "-b", "1", "-f", str(tmp_path / "text"), "--progress")
    assert shown.stdout == plain.stdout
    assert plain.stderr == ""
    assert "1.2/1.2 kB" in shown.stderr


@pytest.mark.parametrize(
    ("stdout", "stderr", "output", "size", "shown"),
    [
        (False, True, None, 30_000, True),
        (True, True, "out", 30_000, True),
        (True, True, None, 30_000, False),  # it would stand between the translations
        (False, False, None, 30_000, False),
        (False, True, None, 300, False),
    ],
)
def test_a_bar_is_shown_where_a_person_sees_it(monkeypatch, tmp_path, stdout, stderr, output, size, shown):
    (tmp_path / "text").write_bytes(b"a" * size)
    for name, is_terminal in (("stdout", stdout), ("stderr", stderr)):
        stream = io.StringIO()
        stream.isatty = lambda is_terminal=is_terminal: is_terminal
        monkeypatch.setattr(sys, name, stream)
    inputs = Inputs(None, [str(tmp_path / "text")], "text")
    assert _wants_bar(inputs, output and tmp_path / output, None) == shown
    assert _wants_bar(inputs, None, not shown) != shown


def test_blocks_are_of_whole_lines_and_bounded(tmp_path):
    lines = [b"x" * 20_000 + b"\n", b"y\n", b"z" * 40_000 + b"\n", *([b"a\n"] * 300), b"end"]
    (tmp_path / "text").write_bytes(b"".join(lines))
    reported = []
    blocks = [block for _, block in Inputs(None, [str(tmp_path / "text")], "text").blocks(reported.append, print)]
    assert "".join(blocks) == b"".join(lines).decode()
    assert all(block.endswith("\n") for block in blocks[:-1])
    assert [len(block) for block in blocks[:2]] == [20_003, 40_001]
    assert max(block.count("\n") for block in blocks) == 128
    assert reported == [len(block) for block in blocks]


def test_the_version_is_printed(run):
    result = run("--version")
    assert result.exit_code == 0
    assert re.fullmatch(r"gossamer \d+\.\d+\.\d+\S*\n", result.output)


def test_a_sentence_that_is_too_long_is_translated_in_parts(run):
    result = run("translate", "-m", TINY, "the spider feels the web, and " * 60)
    assert result.exit_code == 0
    assert len(result.output) > 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-b", "99", "Hello."], "--beam-size is 99; allowed is an integer from 1 to 16"),
        (["-b", "many", "Hello."], "--beam-size"),
        (["-m", "no/such/folder", "Hello."], "--model is no/such/folder; allowed is a checkpoint folder, or the name"),
        (
            ["-m", "nope", "Hello."],
            "--model is nope; allowed is a checkpoint folder, or the name of a model (with Goss",
        ),
        (["-m", "nope", "Hello."], "en-fr"),
        (["-f", "."], ". cannot be read (Is a directory)"),
        (["-f", "README.md/x"], "README.md/x cannot be read (Not a directory)"),
        (["-f", "no-such-file"], "no-such-file cannot be read (No such file or directory)"),
        (["-f", "a", "Hello."], "texts or files, not both"),
        (["Hello.", "-"], "texts, or - for standard input, not both"),
        (["--html", "--xml", "Hello."], "--html or --xml, not both"),
        (["--xml", "<a>"], "not well-formed XML: mismatched tag, in line"),
        (["--source", "xx", "Hello."], 'no model has the source language "xx"'),
        (["--server", "http://127.0.0.1:1", "-m", TINY, "Hello."], "with --server, name the languages"),
        (["--api-key", "k", "Hello."], "--api-key is for a --server"),
    ],
)
def test_a_wrong_call_is_2_and_says_why(run, arguments, message):
    model = [] if "-m" in arguments else ["-m", TINY]
    result = run("translate", *model, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_input_that_is_no_utf_8_names_its_line(run):
    result = run("translate", "-m", TINY, stdin=b"Hello.\n" * 200 + b"\xff\n")
    assert result.exit_code == 2
    assert "standard input, line 201: not UTF-8" in result.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "line 1: not UTF-8 (invalid start byte)"),
        (b"Hello.\n" * 130 + b"ELF\0", "line 131: not text, there is a zero byte in it"),
        ("Hello.".encode("utf-16"), " is UTF-16, not UTF-8; save it as UTF-8"),
    ],
)
def test_files_that_are_no_text_are_told_in_a_line(run, tmp_path, content, message):
    (tmp_path / "a.bin").write_bytes(content)
    result = run("translate", "-m", TINY, "-f", str(tmp_path / "a.bin"))
    assert result.exit_code == 2
    assert message in result.stderr
    assert str(tmp_path / "a.bin") in result.stderr
    assert result.stderr.count("\n") == 1


def test_files_that_cannot_be_read_are_told_before_any_work(run, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("Hello.\n")
    monkeypatch.setattr("service.translate_command.load_settings", None)  # no work
    monkeypatch.setattr("service.translate_command._by_engine", None)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "a.txt" not in str(path) and access(path, mode))
    for name, fault in (("a.txt", "Permission denied"), ("b.txt", "No such file or directory")):
        result = run("translate", "-m", TINY, "-f", "-", "-f", str(tmp_path / name))
        assert (result.exit_code, result.stderr) == (2, f"gossamer: {tmp_path / name} cannot be read ({fault})\n")


@pytest.mark.parametrize("remote", [False, True])
def test_xml_that_is_not_well_formed_names_its_file_and_line(run, tmp_path, server, remote):
    (tmp_path / "a.xml").write_text("<r>\n<p>Hello.</p>\n<p>\n</r>\n")
    (tmp_path / "b.xml").write_text("<r/>")
    where = ["--server", server.address, "--target", "fr"] if remote else ["-m", TINY]
    result = run("translate", *where, "--xml", "-f", str(tmp_path / "b.xml"), "-f", str(tmp_path / "a.xml"))
    assert result.exit_code == 2
    assert f"{tmp_path / 'a.xml'}: " in result.stderr
    assert "in line 4, column 3" in result.stderr


def test_what_a_server_refuses_is_2_and_a_server_that_is_not_there_is_1(run, server):
    result = run("translate", "--server", server.address, "--target", "xx", "Hello.")
    assert result.exit_code == 2
    assert "target language" in result.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    result = run("translate", "--server", address, "Hello.")
    assert result.exit_code == 1
    assert address in result.stderr
    result = run("translate", "--server", address.removeprefix("http://"), "Hello.")
    assert result.exit_code == 2
    assert "--server or --api-key cannot be used: base_url is '127.0.0.1:" in result.stderr


@pytest.mark.parametrize(
    ("streams", "message", "status"),
    [
        (">/dev/full", "gossamer: standard output cannot be written (No space left on device)\n", 1),
        (">&-", "gossamer: standard output is closed\n", 1),
        ("<&-", "gossamer: standard input is closed\n", 2),
    ],
)
def test_standard_streams_that_cannot_be_used_are_told_in_a_line(streams, message, status):
    text = "" if streams == "<&-" else "12:30"
    command = f"{sys.executable} -m service translate -m {TINY} {text} {streams}"
    result = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (result.stderr, result.returncode) == (message, status)


def test_a_file_is_written_with_what_standard_output_would_have(run, tmp_path):
    (tmp_path / "in.txt").write_text("Hello.\n\n12:30\n", encoding="utf-8")
    output = tmp_path / "out.txt"
    output.write_text("older, and much longer than what comes now " * 9, encoding="utf-8")
    result = run("translate", "-m", TINY, "--file", tmp_path / "in.txt", "--output", output)
    assert (result.exit_code, result.output) == (0, "")
    assert output.read_text(encoding="utf-8") == run("translate", "-m", TINY, "--file", tmp_path / "in.txt").output
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    assert run("translate", "-m", TINY, "--file", tmp_path / "empty.txt", "--output", output).exit_code == 0
    assert output.read_bytes() == b""


@pytest.mark.parametrize("ray", [(), ("--ray", "local")])
@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("missing/out.txt", "No such file or directory"),
        ("in.txt/out.txt", "Not a directory"),
        (".", "Is a directory"),
        ("locked/out.txt", "Permission denied"),
        ("in.txt", None),
        ("link.txt", None),
    ],
)
def test_an_output_that_nobody_could_write_is_told_before_any_work(run, tmp_path, monkeypatch, output, reason, ray):
    (tmp_path / "in.txt").write_text("Hello.\n", encoding="utf-8")
    (tmp_path / "link.txt").symlink_to("in.txt")
    (tmp_path / "locked").mkdir()
    monkeypatch.setattr("service.translate_command.load_settings", None)  # no work
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "locked" not in str(path) and access(path, mode))
    path = tmp_path / output
    result = run("translate", "-m", TINY, "--file", tmp_path / "in.txt", "--output", path, *ray)
    why = f"cannot be written ({reason})" if reason else "is what is to be translated: name another file"
    assert (result.stderr, result.exit_code) == (f"gossamer: {path} {why}\n", 2)
    assert (tmp_path / "in.txt").read_text(encoding="utf-8") == "Hello.\n"
    assert not (tmp_path / "missing").exists()


def test_a_disk_that_is_full_is_told_in_a_line(run):
    result = run("translate", "-m", TINY, "12:30", "--output", "/dev/full")
    assert (result.stderr, result.exit_code) == (
        "gossamer: /dev/full cannot be written (No space left on device)\n",
        1,
    )


def test_scores_are_not_made_for_a_file_that_cannot_be_written(run, tmp_path):
    result = run("evaluate", "-m", TINY, "--data", tmp_path, "--output", tmp_path / "missing" / "scores.json")
    assert result.exit_code == 2
    assert "cannot be written (No such file or directory)" in result.stderr


def test_a_reader_that_has_seen_enough_is_no_error():
    lines = "printf '12:30\\n%.0s' {1..130}"  # more than are translated at once, and quick
    command = f"set -o pipefail; {lines} | {sys.executable} -m service translate -m {TINY} | head -n 1"
    result = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) == 1


# --- train and evaluate -----------------------------------------------------------------------------------------------


@pytest.fixture
def called(monkeypatch):
    """What the training modules' `main` would have been called with."""
    calls = []

    def replace(module, result):
        def main(*arguments, **options):
            calls.append((arguments, options))
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(importlib.import_module(module), "main", main)
        return calls

    return replace


def test_train_passes_its_options_on(run, called):
    calls = called("model.training.loop", True)
    result = run("train", "c.toml", "--fresh", "--run-folder", "r", "--stop-after-minutes", "1.5")
    assert result.exit_code == 0
    assert calls == [
        ((Path("c.toml"),), {"run_folder": Path("r"), "fresh": True, "start_from": None, "stop_after_minutes": 1.5})
    ]


def test_train_resumes_by_default_and_says_when_it_is_not_finished(run, called):
    calls = called("model.training.loop", False)
    result = run("train", "c.toml")
    assert result.exit_code == 0
    assert calls == [
        ((Path("c.toml"),), {"run_folder": None, "fresh": False, "start_from": None, "stop_after_minutes": None})
    ]
    assert "goes on from here" in result.stderr


def test_evaluate_passes_its_options_on(run, called):
    calls = called("model.training.evaluation", [])
    result = run("evaluate", "-m", TINY, "-d", "a.tsv.gz", "-d", "b", "-b", "2", "--limit", "5", "-o", "s.json")
    assert result.exit_code == 0
    assert calls == [
        (
            (Path(TINY), [Path("a.tsv.gz"), Path("b")]),
            {
                "options": DecodingOptions(beam_size=2, beam_threshold=2.5),
                "precision": "auto",
                "limit": 5,
                "output": Path("s.json"),
            },
        )
    ]


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (["train", "c.toml"], "model.training.loop"),
        (["evaluate", "-m", TINY, "-d", "d"], "model.training.evaluation"),
    ],
)
def test_what_cannot_be_used_is_2_and_said(run, called, command, module):
    called(module, ValueError("line 7 of the file is damaged"))
    result = run(*command)
    assert result.exit_code == 2
    assert result.stderr == "gossamer: line 7 of the file is damaged\n"


def test_a_missing_package_is_named_with_how_to_get_it(run, called):
    called("model.training.evaluation", ModuleNotFoundError("No module named 'sacrebleu'", name="sacrebleu"))
    result = run("evaluate", "-m", TINY, "-d", "d")
    assert result.exit_code == 2
    assert "sacrebleu" in result.stderr
    assert "gossamer[train]" in result.stderr


def test_the_name_of_a_bundled_model_stands_for_its_folder(run, called):
    calls = called("model.training.evaluation", [])
    assert run("evaluate", "-m", "en-fr", "-d", "d").exit_code == 0
    (given, _) = calls[0]
    assert given[0] == BUNDLED_MODELS / "en-fr"
    result = run("serve", "--check", "--model", "en-fr", "--model", "no-such-model")
    assert result.exit_code == 2
    assert result.stderr.startswith("gossamer: --model is no-such-model; allowed is")


@pytest.mark.parametrize("command", [["evaluate", "-d", "d"], ["export", "--ctranslate2", "no-such-folder"]])
def test_without_exactly_one_model_of_the_settings_one_must_be_named(run, monkeypatch, command):
    monkeypatch.setenv("GOSSAMER_MODELS", "a:b")
    result = run(*command)
    assert result.exit_code == 2
    assert "--model" in result.stderr
    assert "a, b" in result.stderr


def test_translate_refuses_settings_that_cannot_be_used(run, monkeypatch):
    monkeypatch.setenv("GOSSAMER_MAX_SEGMENT_TOKENS", "many")
    result = run("translate", "-m", TINY, "Hello.")
    assert result.exit_code == 2
    assert "GOSSAMER_MAX_SEGMENT_TOKENS" in result.stderr


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_is_made_listed_and_withdrawn(run, tmp_path):
    file = str(tmp_path / "keys.json")
    made = run("keys", "--file", file, "create", "the shop", "--scope", "translate", "--scope", "inspect")
    assert made.exit_code == 0
    secret = made.stdout.strip()
    key_id = secret.split("_")[1]
    assert key_id in made.stderr
    assert secret not in (tmp_path / "keys.json").read_text()
    run("keys", "--file", file, "create", "another", "--requests-per-minute", "60")
    first, second = run("keys", "--file", file, "list").stdout.splitlines()
    assert first.startswith(f"{key_id}  holds")
    assert first.endswith("translate,inspect  the shop")
    assert second.endswith("translate  another  60 requests a minute")
    assert run("keys", "--file", file, "revoke", key_id).exit_code == 0
    assert "revoked" in run("keys", "--file", file, "list").stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list"], "GOSSAMER_KEYS_FILE"),
        (["--file", "/no/such/file", "list"], "cannot be read"),
        (["--file", "/no/such/file", "create", "x"], "cannot be written"),
        (["--file", "/no/such/file", "create", "x", "--scope", "all"], "--scope"),
    ],
)
def test_keys_say_what_is_wrong(run, monkeypatch, arguments, message):
    monkeypatch.delenv("GOSSAMER_KEYS_FILE", raising=False)
    result = run("keys", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_key_that_is_not_there_is_not_revoked(run, tmp_path):
    run("keys", "--file", str(tmp_path / "k"), "create", "x")
    result = run("keys", "--file", str(tmp_path / "k"), "revoke", "00000000")
    assert result.exit_code == 2
    assert "00000000" in result.stderr


# --- doctor -----------------------------------------------------------------------------------------------------------


def test_doctor_tells_facts_and_hints_and_that_the_server_can_be_started(run, monkeypatch):
    monkeypatch.setenv("GOSSAMER_MODELS", TINY)
    result = run("doctor")
    assert result.exit_code == 0
    assert "processor: " in result.output
    assert "model tiny: " in result.output
    assert "GOSSAMER_DEFAULT_BEAM_SIZE=1" in result.output


def test_doctor_lists_faults_of_the_settings_and_the_rest_nevertheless(run, monkeypatch):
    monkeypatch.setenv("GOSSAMER_PROT", "1")
    monkeypatch.setenv("GOSSAMER_PORT", "x")
    result = run("doctor", "--json")
    assert result.exit_code == 2
    findings = json.loads(result.stdout)
    assert [finding["text"].split(":")[0] for finding in findings if finding["level"] == "fault"] == [
        "GOSSAMER_PROT",
        "GOSSAMER_PORT",
    ]
    assert any(finding["level"] == "fact" for finding in findings)


def test_check_looks_at_the_keys_too(run, tmp_path, monkeypatch):
    monkeypatch.setenv("GOSSAMER_KEYS_FILE", str(tmp_path / "none"))
    result = run("serve", "--check", "-m", TINY)
    assert result.exit_code == 2
    assert "keys_file: " in result.stderr


# --- serve ------------------------------------------------------------------------------------------------------------


def test_check_says_that_the_settings_can_be_used(run):
    result = run("serve", "--check", "-m", TINY)
    assert result.exit_code == 0
    assert result.output == "The settings can be used. Models: tiny\n"


def test_check_lists_every_fault(run, monkeypatch):
    monkeypatch.setenv("GOSSAMER_PROT", "1")
    result = run("serve", "--check", "--port", "99999", "-m", TINY)
    assert result.exit_code == 2
    assert "GOSSAMER_PROT" in result.stderr
    assert "--port" in result.stderr


@pytest.mark.parametrize("are_there", [True, False])
def test_models_that_cannot_be_used_are_all_named(run, tmp_path, are_there):
    for name in ("one", "other") if are_there else ():
        (tmp_path / name).mkdir()
    result = run("serve", "--check", "-m", str(tmp_path / "one"), "-m", str(tmp_path / "other"))
    assert result.exit_code == 2
    assert str(tmp_path / "one") in result.stderr
    assert str(tmp_path / "other") in result.stderr


def test_two_models_of_one_name_are_refused(run):
    result = run("serve", "--check", "-m", TINY, "-m", TINY)
    assert result.exit_code == 2
    assert "more than one is called tiny" in result.stderr
