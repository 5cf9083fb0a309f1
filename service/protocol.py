"""HTTP/1.1 on one connection: uvicorn's protocol on h11, with what the two leave to the server.

That is how long the headers of a request may be and take, which versions and forms of a target there are (RFC 9112,
section 3.2), what leaves the end of a body unsure (sections 5.2, 6.1 and 6.3), which expectations can be met, and what
a client is told that sends something else: a problem document like all others, with the field, what was given and what
is allowed. The connection is closed then.
"""

from __future__ import annotations

import ast
import asyncio
import ipaddress
import logging
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.api.errors import (
    HeadersTooLarge,
    MalformedRequest,
    UnknownHttpVersion,
    UnknownTransferCoding,
    UnmetExpectation,
    problem_response,
)
from service.observability.logging import request_id

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of a request's line and headers together; also of a chunk's line, and of the trailers."""

_LINGER_SECONDS = 2
"""How long a client that was refused because it sent no HTTP may go on sending, to nobody."""

_HEAD_END = re.compile(rb"\n\r?\n")
_ADDRESS = re.compile(rb"(?i)https?://([^/?#]*)")
_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::([0-9]{0,5}))?")
_MAX_PORT = 65_535
_EMPTY_LINES = re.compile(rb"(?:\r?\n)+")
_FOLDED = re.compile(rb"\n([ \t][^\n]*)")
_QUOTED = re.compile(r"""b(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_TLS_HANDSHAKE = b"\x16\x03"
_PHRASES = {413: b"Content Too Large", 422: b"Unprocessable Content"}
"""Of RFC 9110, where `http.HTTPStatus` has those of its forerunners until Python 3.13."""

_TARGET = "a path that begins with /, or an address that begins with http:// or https://"


class _Refused(h11.RemoteProtocolError):
    """What h11 read is refused all the same, or h11 has refused it; `reason` is for the client."""

    def __init__(self, reason: MalformedRequest | HeadersTooLarge) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Connection(h11.Connection):
    """A client's side of a connection, as h11 reads it, in the forms that the server takes.

    A target with the server's address (`GET http://host/path`), as proxies send it, becomes the path, and its host the
    `Host` header. Empty lines before a request are left out, as some clients end a body with one (RFC 9112, section
    2.2). What comes after a request that ends the connection is read by nobody.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)

    def receive_data(self, data: bytes) -> None:
        """As h11's."""
        if not self._is_over:
            super().receive_data(data)

    def next_event(self) -> Any:
        """As h11's.

        Raises:
            h11.RemoteProtocolError: Always with the reason, a `MalformedRequest` or `HeadersTooLarge`, as `reason`.
        """
        if self._is_over:
            return h11.NEED_DATA
        head = self.trailing_data[0] if self.their_state is h11.IDLE else None
        if head is not None:
            if (empty := _EMPTY_LINES.match(head)) is not None:
                self._receive_buffer.maybe_extract_at_most(empty.end())
                head = head[empty.end() :]
            if head == b"\r":
                return h11.NEED_DATA
            _check_size(head)
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            raise _Refused(_explained(error, head)) from error
        return _usual(event, head or b"") if isinstance(event, h11.Request) else event

    def send(self, event: Any) -> Any:
        """As h11's, with the reason phrases of today."""
        if isinstance(event, h11.Response) and event.status_code in _PHRASES:
            event = h11.Response(
                status_code=event.status_code, headers=event.headers, reason=_PHRASES[event.status_code]
            )
        return super().send(event)

    @property
    def _is_over(self) -> bool:
        """Whether no other request may come: to h11 what comes nevertheless is a fault of the one that is served."""
        return self.their_state in (h11.MUST_CLOSE, h11.CLOSED)


def patient_protocol(max_seconds: float) -> type[asyncio.Protocol]:
    """The server's protocol.

    Args:
        max_seconds: How long the headers of a request may take.
    """

    class PatientProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None
        _is_refused = False

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.conn = Connection()

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            if self._is_refused:
                return
            super().data_received(data)
            if not self._is_refused:
                self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._unwatch()

        def _should_upgrade(self) -> bool:
            return False  # and no word in the log: any client may ask, and it need not be done (RFC 9110, section 7.8)

        def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - says nothing that the parser's error does not
            if not self._is_between_requests():
                if self.cycle.response_started:  # another answer is on its way: there is no place for this one
                    self.transport.close()
                    return
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            error = sys.exception()
            assert isinstance(error, _Refused)
            head, body = _refusal(error.reason)
            dates = [name + b": " + value for name, value in self.server_state.default_headers]
            self.transport.write(b"\r\n".join([*head, *dates, b"", body]))
            # What still comes is read and dropped: a connection closed before that is a reset to the client, which then
            # never sees the answer.
            self._is_refused = True
            self.transport.write_eof()
            self._unwatch()
            self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

        def _is_between_requests(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _watch(self) -> None:
            if not self._is_between_requests():
                self._unwatch()
            elif self._timer is None:
                self._timer = self.loop.call_later(max_seconds, self._give_up)

        def _unwatch(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            if self._is_between_requests():
                self.transport.close()

    return PatientProtocol


def _check_size(head: bytes) -> None:
    """Refuses a head that is too long, also one that has arrived at once; `head` may be its beginning, or go beyond."""
    if len(head) <= MAX_HEAD_BYTES:
        return
    end = _HEAD_END.search(head)
    if end is None or end.end() > MAX_HEAD_BYTES:
        raise _Refused(HeadersTooLarge(None if end is None else end.end(), MAX_HEAD_BYTES))


def _usual(request: h11.Request, head: bytes) -> h11.Request:
    """The request with a path as its target, in a version that there is.

    Raises:
        _Refused: Its version, target, host or expectation is none that can be served, or its framing none to rely on.
    """
    version, target = request.http_version, request.target
    if not version.startswith(b"1."):
        raise _Refused(UnknownHttpVersion("the version", f"HTTP/{version.decode()}", "HTTP/1.1 or HTTP/1.0"))
    headers = [(name, value) for name, value in request.headers if name != b"host"]
    _check_framing(version, headers, head)
    expected = b", ".join(value for name, value in headers if name == b"expect")
    if any(each.strip().lower() not in (b"", b"100-continue") for each in expected.split(b",")):
        raise _Refused(UnmetExpectation("Expect", expected.decode("latin-1"), "only 100-continue"))
    hosts = [value for name, value in request.headers if name == b"host"]
    if not hosts and version > b"1.1":  # which h11 leaves out
        raise _Refused(_host("", head))
    address = _ADDRESS.match(target)
    if address is not None:
        hosts = [address[1]]
        if not address[1]:
            raise _Refused(MalformedRequest("the request's target", target.decode(), "an address with a host"))
        target = target[address.end() :]
        target = target if target.startswith(b"/") else b"/" + target
    elif not (target.startswith(b"/") or (target == b"*" and request.method == b"OPTIONS")):
        allowed = _TARGET if target == b"*" else f"{_TARGET}; this is no proxy to other servers"
        raise _Refused(MalformedRequest("the request's target", target.decode(), allowed))
    for host in hosts:
        if not _is_host(host):
            where = "Host" if address is None else "the host of the request's target"
            allowed = f"a name or address, perhaps with :PORT, at most {_MAX_PORT}"
            raise _Refused(MalformedRequest(where, host.decode("latin-1"), allowed))
    if address is None and version <= b"1.1":
        return request
    # A later 1.x is to be read as the latest that there is (RFC 9110, section 6.2).
    return h11.Request(
        method=request.method,
        target=target,
        headers=[*headers, *((b"host", host) for host in hosts)],
        http_version=min(version, b"1.1"),
    )


def _check_framing(version: bytes, headers: Sequence[tuple[bytes, bytes]], head: bytes) -> None:
    """Refuses what another server on the way may read as a request with another end."""
    if (folded := _FOLDED.search(_HEAD_END.split(head, maxsplit=1)[0])) is not None:
        allowed = "NAME: VALUE in one line: none may begin with a space or a tab"
        raise _Refused(MalformedRequest("a header", folded[1].rstrip(b"\r").decode("latin-1"), allowed))
    names = {name for name, _ in headers}
    if b"transfer-encoding" in names and (version < b"1.1" or b"content-length" in names):
        given = ", ".join(_values(head, b"transfer-encoding"))
        allowed = (
            "none beside a Content-Length: the two tell of different bodies"
            if b"content-length" in names
            else "none in HTTP/1.0, which has a Content-Length"
        )
        raise _Refused(MalformedRequest("Transfer-Encoding", given, allowed))


def _is_host(value: bytes) -> bool:
    found = _HOST.fullmatch(value)
    if found is None or int(found[2] or 0) > _MAX_PORT:
        return False
    try:
        return found[1] is None or ipaddress.ip_address(found[1].decode()).version == 6
    except ValueError:
        return False


def _explained(error: h11.RemoteProtocolError, head: bytes | None) -> MalformedRequest | HeadersTooLarge:
    """What h11 refuses, with what was given, which its messages mostly lack.

    Args:
        error: h11's.
        head: What it read, at least; None if that was the body.
    """
    text = str(error)
    if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return HeadersTooLarge(
            None, MAX_HEAD_BYTES, "the request's line and headers" if head else "a chunk's line and the trailers"
        )
    for begin, explain in _FAULTS.items():
        if text.startswith(begin):
            return explain(text, head or b"")
    return MalformedRequest("the request", text, "what RFC 9112 has")


def _request_line(_text: str, head: bytes) -> MalformedRequest:
    is_tls = head.startswith(_TLS_HANDSHAKE)
    given = "the beginning of TLS (https)" if is_tls else head.partition(b"\n")[0].rstrip(b"\r").decode("latin-1")
    return MalformedRequest("the request's line", given, "METHOD TARGET HTTP/1.1, as GET /healthz HTTP/1.1")


def _header_line(text: str, head: bytes) -> MalformedRequest:
    first = head.split(b"\n", 2)[1:2]
    given = _quoted_in(text) or b"".join(first).rstrip(b"\r").decode("latin-1")
    return MalformedRequest("a header", given, "NAME: VALUE, with no space before the colon and no control characters")


def _length(_text: str, head: bytes) -> MalformedRequest:
    given = ", ".join(_values(head, b"content-length"))
    return MalformedRequest("Content-Length", given, "one whole number of at most 20 digits")


def _coding(_text: str, head: bytes) -> MalformedRequest:
    """Where `chunked` is not the last coding, or not the only one of that name, nobody knows where the body ends."""
    given = ", ".join(_values(head, b"transfer-encoding"))
    codings = [coding.strip().lower() for coding in given.split(",")]
    has_end = codings[-1] == "chunked" and codings.count("chunked") == 1
    return (UnknownTransferCoding if has_end else MalformedRequest)("Transfer-Encoding", given, "only chunked")


def _host(_text: str, head: bytes) -> MalformedRequest:
    return MalformedRequest("Host", ", ".join(_values(head, b"host")) or None, "one, as HTTP/1.1 needs it")


def _chunk(text: str, _head: bytes) -> MalformedRequest:
    return MalformedRequest("a chunk's line", _quoted_in(text), "its size in at most 20 hexadecimal digits, and CR LF")


def _chunk_end(text: str, _head: bytes) -> MalformedRequest:
    return MalformedRequest("the end of a chunk", _quoted_in(text), "CR LF after as many bytes as its line says")


_FAULTS: dict[str, Callable[[str, bytes], MalformedRequest]] = {
    "illegal request line": _request_line,
    "no request line received": _request_line,
    "illegal header line": _header_line,
    "continuation line": _header_line,
    "bad Content-Length": _length,
    "conflicting Content-Length": _length,
    "multiple Transfer-Encoding": _coding,
    "Only Transfer-Encoding": _coding,
    "Missing mandatory Host": _host,
    "Found multiple Host": _host,
    "illegal chunk header": _chunk,
    "malformed chunk footer": _chunk_end,
}
"""By how h11's messages begin."""


def _quoted_in(text: str) -> str | None:
    """The bytes that a message of h11 repeats."""
    found = _QUOTED.search(text)
    return None if found is None else ast.literal_eval(found[0]).rstrip(b"\r\n").decode("latin-1")


def _values(head: bytes, name: bytes) -> list[str]:
    lines = _HEAD_END.split(head, maxsplit=1)[0].split(b"\n")[1:]
    pairs = [line.partition(b":") for line in lines]
    return [value.strip().decode("latin-1") for given, _, value in pairs if given.lower() == name]


def _refusal(error: MalformedRequest | HeadersTooLarge) -> tuple[list[bytes], bytes]:
    """The answer to what is no HTTP: the lines of its head, and its body."""
    told = request_id.set(secrets.token_hex(16))
    try:
        response = problem_response(error)
        # What was given is the client's own business, and may be a secret.
        logger.info("refused what is no HTTP: %s", error.field)
    finally:
        request_id.reset(told)
    reason = HTTPStatus(response.status_code).phrase  # none of `_PHRASES`
    lines = [f"HTTP/1.1 {response.status_code} {reason}".encode()]
    return [*lines, *(name + b": " + value for name, value in response.raw_headers)], bytes(response.body)
