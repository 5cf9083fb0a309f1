"""The examples of docs/api.md and of OpenAPI work, and the pages load nothing from elsewhere."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from service.api import schemas
from service.api.errors import STATUS_TABLE
from service.pipeline import WARNINGS
from tests.service.fake_tokenizer import upper
from tests.service.fakes import FakeEngine

ROOT = Path(__file__).resolve().parents[3]
API_DOCS = (ROOT / "docs/api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```bash\n(curl .*?)\n```(?:\n\n```json\n(.*?)\n```)?", API_DOCS, re.DOTALL)
PAGES = sorted((ROOT / "service/inspector").iterdir())


class CapitalEngine(FakeEngine):
    """Its translations are not their sources, which would be told as a warning."""

    translate = staticmethod(upper)

    def _result(self, sequence):
        """Each hypothesis is another one."""
        result = super()._result(sequence)
        hypotheses = [
            replace(each, tokens=each.tokens[:1] * rank + each.tokens, token_log_probs=None)
            for rank, each in enumerate(result.hypotheses)
        ]
        return replace(result, hypotheses=tuple(hypotheses))


@pytest.fixture
def engine():
    return CapitalEngine()


def test_each_code_of_a_warning_is_explained_in_the_schema_and_the_docs(client):
    code = client.get("/openapi.json").json()["components"]["schemas"]["Warning"]["properties"]["code"]
    table = re.search(r"^\| `code` \| Meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", API_DOCS, re.MULTILINE)[1]
    assert set(WARNINGS) == set(schemas.WARNINGS) == set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    for name in WARNINGS:
        assert f"`{name}`: " in code["description"]


def send(client, command):
    words = [word for word in shlex.split(command)[1:] if word != "-N"]
    path = words[0].removeprefix("http://127.0.0.1:8000")
    if "-d" not in words:
        return client.get(path)
    assert words[1:3] == ["-H", "Content-Type: application/json"]
    return client.post(
        path, content=words[words.index("-d") + 1].encode(), headers={"content-type": "application/json"}
    )


def shape(value):
    """The names and kinds in a JSON value, without its contents."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shape(part) for part in value]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def test_there_are_examples():
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize(("command", "answer"), EXAMPLES)
def test_the_examples_of_the_documentation_work(client, command, answer):
    response = send(client, command)
    if not answer:
        assert response.status_code == 200
        return
    expected, given = json.loads(answer), response.json()
    assert shape(given) == shape(expected)
    if "status" in expected and "type" in expected:
        assert given | {"request_id": ""} == expected | {"request_id": ""}
    else:
        assert response.status_code == 200


def test_the_documentation_names_every_field_of_a_request():
    for schema in (schemas.TranslateRequest, schemas.Decoding, schemas.DetectRequest):
        for name, field in schema.model_fields.items():
            assert f"`{field.alias or name}`" in API_DOCS


def test_the_documentation_names_every_kind_of_problem_with_its_status():
    rows = [line.split("|")[1:3] for line in API_DOCS.splitlines() if re.match(r"\| \d", line)]
    documented = {
        (status, slug)
        for statuses, slugs in rows
        for slug in re.findall(r"`([\w-]+)`", slugs)
        for status in re.findall(r"\d+", statuses)
    }
    assert {(str(kind.status), kind.slug) for kind in STATUS_TABLE.values()} <= documented


def test_the_documentation_names_every_path(client):
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in API_DOCS


def test_openapi_s_examples_work(client):
    operation = client.get("/openapi.json").json()["paths"]["/v1/translate"]["post"]
    examples = operation["requestBody"]["content"]["application/json"]["examples"]
    assert len(examples) >= 3
    for example in examples.values():
        assert client.post("/v1/translate", json=example["value"]).status_code == 200
    answer = operation["responses"]["200"]["content"]["application/json"]["example"]
    assert shape(client.post("/v1/translate", json={"text": "a"}).json()) == shape(answer)


def test_openapi_describes_errors_as_problem_documents(client):
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for details in methods.values():
            for status, response in details["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"], (path, status)


def test_openapi_has_every_field_described(client):
    components = client.get("/openapi.json").json()["components"]["schemas"]
    for name in ("TranslateRequest", "Decoding"):
        for field, details in components[name]["properties"].items():
            assert details.get("description"), field


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_pages_have_a_strict_policy_and_what_they_load_is_there(client, path):
    response = client.get(path)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    loaded = re.findall(r'(?:src|href)="([^"]+)"', response.text)
    assert len(loaded) > 3
    for address in loaded:
        assert client.get(address).status_code == 200, address


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_comes_from_another_server_and_nothing_is_inline(page):
    content = page.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//\w+\.\w+", content)
    if page.suffix == ".html":
        assert not re.search(r"<style|<script(?![^>]*\bsrc=)|\bstyle=|\bon\w+=", content)
    assert "innerHTML" not in content


@pytest.mark.parametrize("name", ["../app.py", "..%2Fapp.py", "%2e%2e/app.py", "none.js", "__init__.py", ""])
def test_no_other_file_is_served(client, name):
    assert client.get(f"/assets/{name}").status_code == 404


def test_a_page_that_has_not_changed_is_not_sent_again(client):
    tag = client.get("/").headers["etag"]
    response = client.get("/", headers={"If-None-Match": tag})
    assert (response.status_code, response.content) == (304, b"")
