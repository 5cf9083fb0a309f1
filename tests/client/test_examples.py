"""The programs in docs/examples run against a server."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.test_server import TINY, Server

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "docs/examples").glob("*.py"))


@pytest.fixture(scope="module")
def server():
    server = Server("--model", TINY)
    server.wait_until_ready()
    yield server
    server.stop()


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_example_runs(server, example, tmp_path):
    (tmp_path / "letter.txt").write_text("Hello.\n")
    files = [str(tmp_path / "letter.txt")] if example.name == "many.py" else []
    result = subprocess.run(
        [sys.executable, str(example), server.address, *files],
        env={"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    expected = {
        "translate.py": "422 invalid-request decoding.beam_size",
        "stream.py": "1: ",
        "many.py": "letter.txt: ",
        "detect.py": "Where is the train station?: en (",
    }
    assert expected[example.name] in result.stdout


def test_the_examples_are_in_the_documentation():
    text = (ROOT / "docs/client.md").read_text(encoding="utf-8")
    assert all(f"examples/{example.name}" in text for example in EXAMPLES)
    assert len(EXAMPLES) >= 4
