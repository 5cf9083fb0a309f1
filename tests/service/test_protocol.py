"""What is read of a connection, without a socket."""

import h11
import pytest

from service.protocol import MAX_HEAD_BYTES, Connection


def read(*parts):
    """The events of what a client sends, but for the end."""
    connection, events = Connection(), []
    for part in parts:
        connection.receive_data(part)
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            events.append(event)
    return events


def request_of(line, *headers):
    return read(b"\r\n".join([line, *headers, b"", b""]))[0]


def refused(*parts):
    with pytest.raises(h11.RemoteProtocolError) as caught:
        read(*parts)
    return caught.value.reason


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        (b"/healthz", b"/healthz", b"given"),
        (b"http://example.org/healthz?a=b#c", b"/healthz?a=b#c", b"example.org"),
        (b"HTTPS://example.org:8443/a/b", b"/a/b", b"example.org:8443"),
        (b"http://example.org", b"/", b"example.org"),
        (b"http://[::1]:80?a", b"/?a", b"[::1]:80"),
        (b"/http://example.org/", b"/http://example.org/", b"given"),
    ],
)
def test_a_target_with_the_server_s_address_becomes_a_path_and_its_host_the_header(target, path, host):
    request = request_of(b"GET " + target + b" HTTP/1.1", b"Host: given", b"X-Other: kept")
    assert (request.method, request.target, request.http_version) == (b"GET", path, b"1.1")
    assert dict(request.headers) == {b"host": host, b"x-other": b"kept"}


def test_the_options_of_the_server_are_asked_for_without_a_path():
    assert request_of(b"OPTIONS * HTTP/1.1", b"Host: a").target == b"*"


@pytest.mark.parametrize(
    ("version", "read_as"), [(b"1.0", b"1.0"), (b"1.1", b"1.1"), (b"1.2", b"1.1"), (b"1.9", b"1.1")]
)
def test_versions_that_are_http_1_are_served(version, read_as):
    request = request_of(b"GET /a HTTP/" + version, b"Host: a", b"X: y")
    assert (request.http_version, request.target) == (read_as, b"/a")
    assert dict(request.headers) == {b"host": b"a", b"x": b"y"}


@pytest.mark.parametrize("empty", [b"\r\n", b"\n", b"\r\n\r\n\n"])
def test_empty_lines_before_a_request_are_no_part_of_it(empty):
    request = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
    for parts in ((empty + request,), (empty, request), [bytes([byte]) for byte in empty + request]):
        assert [type(event).__name__ for event in read(*parts)] == ["Request", "EndOfMessage"], parts
    # However the request before it ended.
    connection = Connection()
    connection.receive_data(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}" + empty + request)
    while connection.next_event() is not h11.PAUSED:
        pass
    connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    connection.start_next_cycle()
    assert connection.next_event().target == b"/a"


@pytest.mark.parametrize("expected", [b"100-continue", b"100-Continue", b"", b"100-continue, 100-continue"])
def test_expectations_that_can_be_met(expected):
    assert request_of(b"GET / HTTP/1.1", b"Host: a", b"Expect: " + expected).target == b"/"


def test_chunks_are_read_whatever_is_said_beside_them():
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
    _, data, end = read(head, b'2;name="value;"\r\n{}\r\n0\r\nContent-Length: 9\r\nX: y\r\n\r\n')
    assert bytes(data.data) == b"{}"
    assert isinstance(end, h11.EndOfMessage)


@pytest.mark.parametrize(
    ("status", "phrase"), [(413, "Content Too Large"), (422, "Unprocessable Content"), (200, "OK")]
)
def test_reason_phrases_are_those_of_rfc_9110(status, phrase):
    connection = Connection()
    connection.receive_data(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    connection.next_event()
    head = connection.send(h11.Response(status_code=status, headers=[("X", "y")], reason=b"OK"))
    assert head.startswith(f"HTTP/1.1 {status} {phrase}\r\nX: y\r\n".encode())


@pytest.mark.parametrize(
    "host",
    [b"", b"localhost", b"a-b.example.org:65535", b"127.0.0.1:80", b"[::1]", b"[2001:db8::1]:8000", b"a:", b"x_y"],
)
def test_hosts(host):
    assert dict(request_of(b"GET / HTTP/1.1", b"Host: " + host).headers) == {b"host": host}


HOST = b"Host: a\r\n"


@pytest.mark.parametrize(
    ("raw", "kind", "field", "given"),
    [
        (b"GET / HTTP/9.9\r\n" + HOST, "UnknownHttpVersion", "the version", "HTTP/9.9"),
        (b"GET / HTTP/0.9\r\n" + HOST, "UnknownHttpVersion", "the version", "HTTP/0.9"),
        (b"PRI * HTTP/2.0\r\n", "UnknownHttpVersion", "the version", "HTTP/2.0"),
        (b"GET * HTTP/1.1\r\n" + HOST, "MalformedRequest", "the request's target", "*"),
        (b"GET healthz HTTP/1.1\r\n" + HOST, "MalformedRequest", "the request's target", "healthz"),
        (b"CONNECT a.org:443 HTTP/1.1\r\n" + HOST, "MalformedRequest", "the request's target", "a.org:443"),
        (b"GET ftp://a/ HTTP/1.1\r\n" + HOST, "MalformedRequest", "the request's target", "ftp://a/"),
        (b"GET http:///a HTTP/1.1\r\n" + HOST, "MalformedRequest", "the request's target", "http:///a"),
        (b"GET http://me@a/ HTTP/1.1\r\n" + HOST, "MalformedRequest", "the host of the request's target", "me@a"),
        (b"GET / HTTP/1.1\r\nHost: [\r\n", "MalformedRequest", "Host", "["),
        (b"GET / HTTP/1.1\r\nHost: [::1::a]\r\n", "MalformedRequest", "Host", "[::1::a]"),
        (b"GET / HTTP/1.1\r\nHost: [1.2.3.4]\r\n", "MalformedRequest", "Host", "[1.2.3.4]"),
        (b"GET / HTTP/1.1\r\nHost: a/b\r\n", "MalformedRequest", "Host", "a/b"),
        (b"GET / HTTP/1.1\r\nHost: a:b\r\n", "MalformedRequest", "Host", "a:b"),
        (b"GET / HTTP/1.1\r\nHost: a:65536\r\n", "MalformedRequest", "Host", "a:65536"),
        (b"GET / HTTP/1.1\r\nHost: [::1]:99999\r\n", "MalformedRequest", "Host", "[::1]:99999"),
        (b"GET http://b:99999/ HTTP/1.1\r\n" + HOST, "MalformedRequest", "the host of the request's target", "b:99999"),
        (b"GET / HTTP/1.1\r\nHost: \xe9\r\n", "MalformedRequest", "Host", "é"),
        (b"GET / HTTP/1.1\r\n", "MalformedRequest", "Host", None),
        (b"GET / HTTP/1.2\r\n", "MalformedRequest", "Host", None),
        (
            b"GET / HTTP/1.1\r\nExpect: 100-continue, more\r\n" + HOST,
            "UnmetExpectation",
            "Expect",
            "100-continue, more",
        ),
        (b"GET / HTTP/1.1\r\nX: y\r\n z\r\n" + HOST, "MalformedRequest", "a header", " z"),
        (b"GET / HTTP/1.1\r\nHost: a\n\tz\n", "MalformedRequest", "a header", "\tz"),
        (b"GET / HTTP/1.1\r\nX: a\rb\r\n" + HOST, "MalformedRequest", "a header", "X: a\rb"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n", "MalformedRequest", "Host", "a, b"),
        (b"GET\r\n" + HOST, "MalformedRequest", "the request's line", "GET"),
        (b"GET / HTTP/1.1 \r\n" + HOST, "MalformedRequest", "the request's line", "GET / HTTP/1.1 "),
        (b"\x16\x03\x01\x00\xa5\x01", "MalformedRequest", "the request's line", "the beginning of TLS (https)"),
        (b"GET / HTTP/1.1\r\nbad header\r\n", "MalformedRequest", "a header", "bad header"),
        (b"GET / HTTP/1.1\r\nX : y\r\n", "MalformedRequest", "a header", "X : y"),
        (b"GET / HTTP/1.1\r\nX: 'a\"\x00b\r\n", "MalformedRequest", "a header", "X: 'a\"\x00b"),
        (b"GET / HTTP/1.1\r\n X: y\r\n", "MalformedRequest", "a header", " X: y"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n", "MalformedRequest", "Content-Length", "-5"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n", "MalformedRequest", "Content-Length", "+5"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n", "MalformedRequest", "Content-Length", "5, 6"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n", "MalformedRequest", "Content-Length", ""),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n",
            "MalformedRequest",
            "Transfer-Encoding",
            "chunked",
        ),
        (
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
            "MalformedRequest",
            "Transfer-Encoding",
            "chunked",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n",
            "MalformedRequest",
            "Transfer-Encoding",
            "chunked, gzip",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\ncontent-length:6\r\n",
            "MalformedRequest",
            "Content-Length",
            "5, 6",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n",
            "UnknownTransferCoding",
            "Transfer-Encoding",
            "gzip, chunked",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "MalformedRequest",
            "Transfer-Encoding",
            "chunked, chunked",
        ),
    ],
)
def test_what_is_refused_is_named_with_what_was_given_and_what_is_allowed(raw, kind, field, given):
    reason = refused(raw + b"\r\n")
    assert (type(reason).__name__, reason.field, reason.given) == (kind, field, given)
    assert str(reason).startswith("what came is no HTTP/1.1 request that can be served: ")
    assert reason.allowed and str(reason).endswith(f"; allowed is {reason.allowed}")


@pytest.mark.parametrize(
    ("body", "field", "given"),
    [
        (b"zz\r\n", "a chunk's line", "zz"),
        (b"100000000000000000000\r\n", "a chunk's line", "1" + "0" * 20),
        (b"-1\r\n", "a chunk's line", "-1"),
        (b"2;a\nb\r\n", "a chunk's line", "2;a\nb"),
        (b"5\r\nabcdeXY\r\n", "the end of a chunk", "XY"),
        (b"0\r\nbad trailer\r\n\r\n", "a header", "bad trailer"),
    ],
)
def test_chunks_that_are_none_are_named(body, field, given):
    reason = refused(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", body)
    assert (reason.field, reason.given) == (field, given)


def head_of(num_bytes, *lines):
    start = b"\r\n".join([*lines, b"Host: a", b"X: "])
    return start + b"x" * (num_bytes - len(start) - 4) + b"\r\n\r\n"


def test_a_head_may_have_so_many_bytes_and_not_one_more_however_it_arrives():
    get, put = [b"GET / HTTP/1.1"], [b"PUT / HTTP/1.1", b"Content-Length: 70000"]
    longest, longer, body = head_of(MAX_HEAD_BYTES, *get), head_of(MAX_HEAD_BYTES + 1, *get), b"b" * 70_000
    for parts in ((longest,), (longest[:-2], longest[-2:]), (head_of(MAX_HEAD_BYTES, *put) + body,)):
        assert isinstance(read(*parts)[0], h11.Request)
    for parts in ((longer,), (longer[:-2], longer[-2:]), (head_of(MAX_HEAD_BYTES + 1, *put) + body,)):
        reason = refused(*parts)
        assert type(reason).__name__ == "HeadersTooLarge"
        assert str(reason).endswith("at most 65536 are allowed")
    assert str(refused(longer)).endswith("have 65537 bytes; at most 65536 are allowed")
    assert str(refused(longer[:-4] + body)).endswith("have more than 65536 bytes; at most 65536 are allowed")
    many = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(9_000)) + b"\r\n"
    for raw in (many, b"GET /" + body + b" HTTP/1.1\r\nHost: a\r\n\r\n"):
        assert type(refused(raw)).__name__ == "HeadersTooLarge"


def test_a_chunk_s_line_that_never_ends_is_no_header():
    start = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    reason = refused(start, b"5;" + b"x" * (MAX_HEAD_BYTES + 1))
    assert (type(reason).__name__, reason.field) == ("HeadersTooLarge", "a chunk's line and the trailers")


@pytest.mark.parametrize("line", [b"POST / HTTP/1.0", b"POST / HTTP/1.1\r\nConnection: close"])
@pytest.mark.parametrize("extra", [b"\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x00"])
def test_what_follows_the_last_request_is_not_read_and_no_fault_of_it(line, extra):
    request = line + b"\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
    for parts in ((request, extra), (request + extra,), (request[:-1], b"}" + extra, extra)):
        kinds = [type(event).__name__ for event in read(*parts)]
        assert [kind for kind in kinds if kind != "Data"] == ["Request", "EndOfMessage"], parts
