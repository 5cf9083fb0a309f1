import inspect
import json
import re

import pytest
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from service.api import errors
from service.api.schemas import fields_at
from service.engine import errors as engine_errors
from service.routing import UnknownLanguagePair

WRONG = (None, True, 4.0, 1e30, "x", [], [None], [[]], [1.0], {}, {"": 1})
FOREIGN_WORDS = re.compile(r"\b(None|True|False|Input should|NoneType)\b")


def every_subclass(base):
    return {base} | {found for child in base.__subclasses__() for found in every_subclass(child)}


@pytest.mark.parametrize(
    "kind",
    sorted(
        (every_subclass(errors.ApiError) - {errors.ApiError}) | every_subclass(engine_errors.EngineError),
        key=lambda found: found.__name__,
    ),
)
def test_every_error_of_ours_has_a_status_that_is_no_500(kind):
    entry = next(errors.STATUS_TABLE[base] for base in kind.__mro__ if base in errors.STATUS_TABLE)
    assert entry.status != 500


def test_errors_of_the_engine_module_are_all_engine_errors():
    classes = [found for _, found in inspect.getmembers(engine_errors, inspect.isclass) if issubclass(found, Exception)]
    assert set(classes) <= every_subclass(engine_errors.EngineError)


def test_an_error_that_is_not_in_the_table_says_nothing_about_the_inside():
    problem = errors.problem_of(ZeroDivisionError("secret"))
    assert problem["status"] == 500
    assert "secret" not in str(problem)


def test_long_and_deep_values_are_not_repeated():
    pair = UnknownLanguagePair("source", "x" * 1000, "no", ["en-fr"])
    assert len(errors.problem_of(pair)["errors"][0]["given"]) == 101
    assert errors.shown([1, 2]) == "a list of 2"
    assert errors.shown({"a": {}}) == "an object with 1 field"


def test_kinds_of_validation_errors_that_are_not_known_keep_the_library_s_words():
    error = RequestValidationError([{"type": "new", "loc": ("body", "text"), "msg": "Is odd", "input": 1}])
    assert errors.problem_of(error)["errors"] == [{"field": "text", "given": 1, "allowed": "Is odd"}]


def bodies(routes):
    """What each route takes as its body; an app has routers within routers."""
    for route in routes:
        if isinstance(route, APIRoute) and route.body_field is not None:
            yield route.body_field.field_info.annotation
        else:
            yield from bodies(getattr(getattr(route, "original_router", route), "routes", ()))


def test_every_wrong_value_of_every_field_is_told_in_json_s_words(client):
    schemas = {schema for schema in bodies(client.app.routes) if issubclass(schema, BaseModel)}
    assert len(schemas) > 5
    num_refused = 0
    for schema in schemas:
        names = fields_at(schema, ())
        places = [(name,) for name in names] + [(name, inner) for name in names for inner in fields_at(schema, [name])]
        for place in [*places, ("",), ("decoding", "")]:
            for value in WRONG:
                body = {place[0]: value if len(place) == 1 else {place[1]: value}}
                try:
                    schema.model_validate({"text": "Hello.", **body})
                except ValidationError as error:
                    faults = [fault | {"loc": ("body", *fault["loc"])} for fault in error.errors()]
                    problem = errors.problem_of(RequestValidationError(faults), schema)
                    assert not FOREIGN_WORDS.search(problem["detail"]), problem
                    assert all(fault["field"] != "body" for fault in problem["errors"]), problem
                    num_refused += 1
    assert num_refused > 500


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        (
            "translate",
            {"decoding": {"beam_size": 4.0}},
            "decoding.beam_size is 4.0; allowed is an integer from 1 to 16",
        ),
        ("translate", {"decoding": {"length_penalty": 11}}, "decoding.length_penalty is 11; allowed is a number from"),
        (
            "translate",
            {"decoding": {"beam_size": 1, "beam_threshold": 2.5}},
            "decoding.beam_threshold is 2.5; allowed is none with a beam_size of 1, which has nothing to give up",
        ),
        ("translate", {"stream": True, "decoding": {"beam_threshold": 9}}, "decoding.beam_threshold is 9; allowed is"),
        ("translate", {"decoding": {"temperature": 1, "beam_threshold": 9}}, "decoding.beam_threshold is 9; allowed"),
        ("translate", {"decoding": {"top_k": 1e30}}, "decoding.top_k is 1e+30; allowed is an integer from 1 to 922337"),
        ("translate", {"deadline_seconds": 0}, "deadline_seconds is 0; allowed is a number above 0"),
        ("translate", {"": 1}, '"" is an unknown field (there are: text, '),
        ("translate", {"decoding": {"": 1}}, 'decoding."" is an unknown field (there are: beam_size, '),
        ("translate", {"decoding": {"body": 1}}, "decoding.body is an unknown field"),
        ("translate", {"text.": 1}, '"text." is an unknown field; did you mean text?'),
        ("attention?estimate=x", {}, 'estimate is "x"; allowed is true or false'),
    ],
)
def test_a_message_names_the_field_and_the_value_as_they_were_sent(client, path, body, detail):
    response = client.post(f"/v1/{path}", json={"text": "Hello."} | body)
    assert response.status_code == 422
    assert response.json()["detail"].startswith(detail)


PASSING = [
    # What is raised, the seconds until the next try, and what is said of the limit.
    (errors.RateLimited("key", "tokens", 100, 7, 3.2), "4", ("tokens_per_minute", 7, "100 a minute, all together")),
    (errors.NotReady("loading"), "1", None),
    (engine_errors.InspectionBusy(9, 8, 2.0), "2", ("waiting_inspections", 9, "at most 8 that wait")),
    (engine_errors.QueueFull(70, 60, 5.0), "5", ("waiting_tokens", 70, "at most 60")),
    (engine_errors.WaitTooLong(8.04, 3.0, 7, 60), "5", ("wait_seconds", 8.0, "at most 3")),
    (engine_errors.NotInTime(9.4, 5.04, 7, 60), "5", ("deadline_seconds", 5.0, "about 9 for this text now")),
    (engine_errors.DeadlineExceeded("x"), "1", ("deadline_seconds", 5, "a number above 0 and at most 60")),
    (engine_errors.DeadlineExceeded("x", 2.0, 7.0), "7", ("deadline_seconds", 5, "a number above 0 and at most 60")),
    (engine_errors.EngineStopping(), "1", None),
    (engine_errors.RequestAborted("x"), "1", None),
    (engine_errors.EngineDead("x"), "10", None),
    (engine_errors.EngineError("x"), "1", None),
    (HTTPException(503, "not done yet"), "1", None),
]


@pytest.mark.parametrize(("error", "seconds", "fault"), PASSING, ids=lambda value: type(value).__name__)
def test_what_may_pass_by_itself_says_when_to_try_again_and_which_limit_it_was(error, seconds, fault):
    told = errors.current_timeout.set((5.0, 60.0))
    try:
        response = errors.problem_response(error)
    finally:
        errors.current_timeout.reset(told)
    assert response.status_code in (429, 503, 504)
    assert response.headers["retry-after"] == seconds
    problem = json.loads(response.body)
    named = [] if fault is None else [dict(zip(("field", "given", "allowed"), fault, strict=True))]
    assert problem.get("errors", []) == named
    if fault is not None:  # in the sentence too, which is all that the dialects' clients see
        (allowed,) = set(re.findall(r"\d+", fault[2])) - {"0"}
        assert allowed in problem["detail"]


@pytest.mark.parametrize(
    ("timeout", "said"),
    [
        ((0.5, 60.0), "it was given 0.5 s: give it more, up to 60, or send less text at once"),
        ((60.0, 60.0), "it was given 60 s, the most that is allowed: send less text at once"),
    ],
)
def test_who_has_had_too_little_time_is_told_how_much_and_what_to_do(timeout, said):
    told = errors.current_timeout.set(timeout)
    try:
        problem = errors.problem_of(engine_errors.DeadlineExceeded("x"))
    finally:
        errors.current_timeout.reset(told)
    assert problem["detail"] == f"the deadline passed before the translation was finished; {said}"


def test_each_kind_that_may_pass_by_itself_is_looked_at():
    kinds = {kind for kind, found in errors.STATUS_TABLE.items() if found.status in (429, 503, 504)}
    assert kinds <= {type(error) for error, _, _ in PASSING}
    assert errors.problem_response(errors.BodyTooLarge(2, 1)).headers.get("retry-after") is None


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("translate?targt=fr", "nothing there (did you mean target, in the body?)"),
        ("translate?zzz", "nothing there"),
        ("attention?estimat=1", "only estimate behind the question mark (did you mean estimate, there?)"),
        ("attention?estimate=1&text=x", "only estimate behind the question mark (did you mean text, in the body?)"),
    ],
)
def test_what_is_not_known_behind_the_question_mark_is_refused_with_the_nearest(client, path, allowed):
    response = client.post(f"/v1/{path}", json={"text": "Hello."})
    assert response.status_code == 422
    (fault,) = response.json()["errors"]
    assert fault["field"].startswith("?")
    assert fault["allowed"] == allowed
    assert client.get("/v1/models?model=x").status_code == 422
    assert client.get("/healthz?now=1").status_code == 200


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('{"text": "One.", "text": "Two."}', "text"),
        ('{"text": "One.", "te\\u0078t": "Two."}', "text"),
        ('{"text": "One.", "decoding": {"beam_size": 1, "beam_size": 2}}', "beam_size"),
        ('{"text": "One.", "decoding": {}, "decoding": {}}', "decoding"),
        ('{"text": "One.", "objects": [{}, {"name": 1, "name": 2}]}', "name"),
        ('{"text": "One.", "lists": [' + "[]," * 100 + '{"name": 1, "name": 2}]}', "name"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/translate", "/translate", "/v2/translate"])
def test_a_field_that_is_there_twice_is_not_lost_in_silence(client, path, body, name):
    response = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert f'\\"{name}\\" is there twice in one object' in response.text
    same = {"text": "text", "source": "en", "target": "fr"}
    assert client.post("/v1/translate", json=same).status_code == 200
