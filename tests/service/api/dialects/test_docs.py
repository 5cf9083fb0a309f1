"""The examples of docs/dialects.md, by curl against the running server."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.service.api.test_docs import shape

DOCS = (Path(__file__).resolve().parents[4] / "docs/dialects.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```bash\n((?:printf|curl) .*?)\n```\n\n```json\n(.*?)\n```", DOCS, re.DOTALL)


def test_every_example_has_an_answer():
    assert len(EXAMPLES) == DOCS.count("```bash\n") >= 7


@pytest.mark.parametrize(("command", "answer"), EXAMPLES)
def test_the_examples_of_the_documentation_work(running, command, answer, tmp_path):
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    command = command.replace("curl http", "curl -sS http", 1).replace("http://127.0.0.1:8000", running)
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    given, expected = json.loads(result.stdout), json.loads(answer)
    assert shape(given) == shape(expected)
    if "error" in expected or "message" in expected:
        assert given == expected
