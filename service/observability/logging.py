"""Log lines with the id of the request in each, for people or for programs; users' text is never logged."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, TextIO

request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""The id of the request that is being served; `-` outside of any."""

_MAX_FRAMES = 20
"""Places of an exception that are told, the innermost ones: endless recursion is not to fill the disk."""

_PLAIN_FIELDS = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "request_id"}


def configure_logging(level: str, log_format: Literal["text", "json"], stream: TextIO | None = None) -> None:
    """Sends every logger's lines to one stream; called once by whoever owns the process, never at import.

    Args:
        level: Least important lines to keep.
        log_format: One line of text, or one JSON object a line.
        stream: Standard error by default.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(_add_request_id)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # Says nothing at start and stop that the server does not say itself.
    logging.getLogger("uvicorn.error").setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    # Its lines hold raw paths; the middleware writes one line a request with the route instead.
    logging.getLogger("uvicorn.access").disabled = True


def describe_exception(error: BaseException) -> str:
    """Types and places of an exception and its causes, without messages: those may hold a user's text."""
    parts = []
    cause: BaseException | None = error
    while cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)[-_MAX_FRAMES:]
        places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
        parts.append(f"{type(cause).__name__} at {places or 'an unknown place'}")
        cause = cause.__cause__ or cause.__context__
    return "; caused by ".join(parts)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info service.app [id] message key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        extra = "".join(f" {name}={value}" for name, value in _extra(record).items())
        line = f"{_time(record)} {record.levelname.lower()} {record.name} [{_id(record)}] {record.getMessage()}{extra}"
        line = line.replace("\n", "\\n").replace("\r", "\\r")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request_id": _id(record),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        # Values that a message names (`%(route)s`) are fields too.
        named = record.args if isinstance(record.args, Mapping) else {}
        return json.dumps(fields | dict(named) | _extra(record), default=str, ensure_ascii=False)


def _add_request_id(record: logging.LogRecord) -> bool:
    record.request_id = request_id.get()
    return True


def _id(record: logging.LogRecord) -> str:
    return str(getattr(record, "request_id", "-"))


def _extra(record: logging.LogRecord) -> dict[str, object]:
    hidden = _PLAIN_FIELDS | {"color_message"}
    return {name: value for name, value in record.__dict__.items() if name not in hidden}


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"
