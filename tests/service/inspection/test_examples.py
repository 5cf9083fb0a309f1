"""OpenAPI's examples work, and docs/inspecting.md names what there is."""

import re
from pathlib import Path

import pytest

from service.api import inspect_schemas as schemas
from service.api.inspect_fields import MapFields

DOCS = (Path(__file__).resolve().parents[3] / "docs/inspecting.md").read_text(encoding="utf-8")
PATHS = ("attention", "attention/heatmap.svg", "attention/heatmap.png", "alignment", "trace", "score", "next")


@pytest.fixture(scope="module")
def openapi(float_server):
    return float_server.client.get("/openapi.json").json()


def examples_of(openapi, path):
    return openapi["paths"][f"/v1/{path}"]["post"]["requestBody"]["content"]["application/json"]["examples"]


def matches(example, given, at=""):
    """Every name and kind of an example is in the answer; lists are compared by their first items."""
    if isinstance(example, dict):
        assert isinstance(given, dict), at
        assert set(example) <= set(given), (at, set(example) - set(given))
        for name, part in example.items():
            matches(part, given[name], f"{at}.{name}")
    elif isinstance(example, list):
        assert isinstance(given, list), at
        if example and given:
            matches(example[0], given[0], f"{at}[0]")
    elif isinstance(example, int | float) and not isinstance(example, bool):
        assert isinstance(given, int | float), at
    else:
        assert given is None or example is None or isinstance(given, type(example)), at


@pytest.mark.parametrize("path", PATHS)
def test_every_endpoint_has_examples_that_work(float_server, openapi, path):
    examples = examples_of(openapi, path)
    assert examples
    answer = openapi["paths"][f"/v1/{path}"]["post"]["responses"]["200"]["content"]
    for name, example in examples.items():
        response = float_server.post(path, **example["value"])
        if "application/json" in answer and name == next(iter(examples)):
            matches(answer["application/json"]["example"], response.json())


@pytest.mark.parametrize("path", ["/v1/model", "/v1/models/{name}"])
def test_the_model_s_example_is_what_is_given(float_server, openapi, path):
    example = openapi["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["example"]
    response = float_server.client.get(path.replace("{name}", "tiny"), params={} if "{" in path else {"name": "tiny"})
    matches(example, response.json())
    # OpenAPI leaves null out of examples.
    assert set(example) == {field for field, value in response.json().items() if value is not None}


@pytest.mark.parametrize(
    "schema",
    [
        *(schemas.AttentionRequest, schemas.HeatmapRequest, schemas.AlignmentRequest, schemas.TraceRequest),
        *(schemas.WhatIf, schemas.ScoreRequest, schemas.NextRequest, MapFields),
    ],
)
def test_the_documentation_names_every_field(schema):
    for name, field in schema.model_fields.items():
        assert f"`{name}`" in DOCS, name
        assert field.description, name


def test_the_documentation_s_lines_are_those_of_a_station(float_server):
    (station,) = float_server.json("trace", text="a", target_text="a", stations=["attention"])["stations"]
    (shown,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    assert [line for line in shown.splitlines() if line] == station["numpy"]["code"].splitlines()
