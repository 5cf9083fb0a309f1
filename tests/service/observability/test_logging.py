import io
import json
import logging

import pytest

from service.observability.logging import configure_logging, describe_exception, request_id


@pytest.fixture
def log():
    """Configures logging to a string, and puts everything back afterwards."""
    root = logging.getLogger()
    names = ("uvicorn", "uvicorn.error", "uvicorn.access")
    loggers = [root, *map(logging.getLogger, names)]
    before = [(logger, logger.handlers[:], logger.level, logger.propagate, logger.disabled) for logger in loggers]
    stream = io.StringIO()

    def configure(level="info", log_format="text"):
        configure_logging(level, log_format, stream)
        return stream

    yield configure
    for logger, handlers, level, propagate, disabled in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate, logger.disabled = propagate, disabled


def test_each_line_has_the_id_of_its_request(log):
    stream = log()
    logging.getLogger("a").info("outside")
    token = request_id.set("seven")
    logging.getLogger("a").info("inside %s", "it")
    request_id.reset(token)
    outside, inside = stream.getvalue().splitlines()
    assert outside.endswith(" info a [-] outside")
    assert inside.endswith(" info a [seven] inside it")


def test_json_lines_hold_the_same_fields_and_extras(log):
    stream = log(log_format="json")
    logging.getLogger("a").warning("two\nlines", extra={"seconds": 0.5})
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert (fields["level"], fields["logger"], fields["request_id"]) == ("warning", "a", "-")
    assert (fields["message"], fields["seconds"]) == ("two\nlines", 0.5)
    assert fields["time"].endswith("Z")


def test_a_text_line_stays_one_line(log):
    stream = log()
    logging.getLogger("a").info("forged\r\nline")
    assert stream.getvalue().endswith("forged\\r\\nline\n")


def test_less_important_lines_are_left_out(log):
    stream = log("warning")
    logging.getLogger("a").info("quiet")
    assert stream.getvalue() == ""


def test_exceptions_are_described_by_type_and_place_only():
    def inner():
        raise ValueError("a secret")

    try:
        try:
            inner()
        except ValueError as error:
            raise KeyError("another secret") from error
    except KeyError as error:
        text = describe_exception(error)
    assert "secret" not in text
    assert "KeyError at test_logging.py:" in text
    assert "caused by ValueError at test_logging.py:" in text
    assert "inner" in text


def test_an_endless_recursion_is_described_in_one_short_line():
    def deeper():
        deeper()

    try:
        deeper()
    except RecursionError as error:
        text = describe_exception(error)
    assert text.startswith("RecursionError at ")
    assert len(text) < 2_000
