import inspect

import pytest
from fastapi.exceptions import RequestValidationError

from service.api import errors
from service.engine import errors as engine_errors
from service.routing import UnknownLanguagePair


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


def test_only_what_may_pass_by_itself_has_retry_after():
    assert "retry-after" in errors.problem_response(engine_errors.EngineStopping()).headers
    assert "retry-after" not in errors.problem_response(engine_errors.EngineDead("x")).headers
    assert "retry-after" not in errors.problem_response(engine_errors.DeadlineExceeded("x")).headers
