"""A client of the server's native API, with retries, deadlines and streams; it needs httpx and nothing else.

    from gossamer import Client

    with Client("http://127.0.0.1:8000") as client:
        print(client.translate("Good morning.", target="fr").text)
        for event in client.stream("Good morning. See you.", target="fr"):
            ...

`AsyncClient` is the same for asyncio. A request is tried again when the server is busy, not ready, or out of reach, for
long enough that its restart is not noticed: it promises that a repeated request does no harm. `Retry-After` is heeded,
and no call lasts longer than its timeout.

GossamerError
├── ApiError            the server answered with a problem; has its status, kind, detail and fields
├── ConnectionFailed    the server cannot be reached
└── DeadlineExceeded    time was up
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import httpx

Format = Literal["text", "html", "xml"]

_RETRIED_STATUSES = frozenset({429, 503})
_FIRST_DELAY_SECONDS = 0.25
_MAX_DELAY_SECONDS = 4.0

_PATIENCE_SECONDS = 30.0
"""Longer than a server takes to end what runs, to start, and to load its models."""

_STRANGER_SECONDS = 3.0
"""The patience with an address at which nothing has ever answered: it is probably wrong."""

_CONNECT_SECONDS = 5.0
"""How long a connection may take to be made; what takes longer leads nowhere."""


class GossamerError(Exception):
    """Anything that keeps an answer from coming."""


class ConnectionFailed(GossamerError):
    """The server cannot be reached, or hung up."""


class DeadlineExceeded(GossamerError):
    """The time that was given is over."""


class ApiError(GossamerError):
    """The server refused, or failed.

    Attributes:
        status: The HTTP status.
        kind: What it is, as `queue-full`: the last part of the problem's type.
        detail: One sentence for people.
        faults: What is wrong with which field: `field`, `given` and `allowed` of each.
        request_id: Finds the request in the server's log.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.kind = str(problem.get("type", "")).rpartition(":")[2]
        self.detail = str(problem.get("detail") or problem.get("title") or f"status {status}")
        self.faults: tuple[Mapping[str, Any], ...] = tuple(problem.get("errors") or ())
        self.request_id = str(problem.get("request_id", ""))
        super().__init__(f"{self.detail} ({status} {self.kind})".replace(" )", ")"))


@dataclass(frozen=True, slots=True)
class Detection:
    """The language of a text.

    Attributes:
        language: A code, or `unknown`.
        confidence: From 0 to 1.
        looks_like: The most probable language of all, also if it cannot be translated; only from `detect`.
    """

    language: str
    confidence: float
    looks_like: str | None = None


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of one text.

    Attributes:
        text: The translation.
        detected: The language it was in, if it was to be found out.
        alternatives: The next best ones.
        warnings: What is wrong with it: `repetition`, `length`, ...; one for each segment that has something.
        windowed: Whether a sentence was too long, and was translated in parts.
        truncated: Whether it stopped at a limit of tokens.
        score: Mean log-probability of a token, if it was asked for.
        raw: All that the server said of it.
    """

    text: str
    detected: Detection | None = None
    alternatives: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    windowed: bool = False
    truncated: bool = False
    score: float | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """All that came back.

    Attributes:
        translations: One for each text, in order.
        source: The language they were in; `auto` if they differ.
        target: The language they are in now.
        raw: All that the server said.
    """

    translations: tuple[Translation, ...]
    source: str
    target: str
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        """The translation of the only text, or the first."""
        return self.translations[0].text

    @property
    def texts(self) -> list[str]:
        """All translations, in order."""
        return [translation.text for translation in self.translations]


@dataclass(frozen=True, slots=True)
class Delta:
    """More text of a segment that is being written.

    Attributes:
        translation: Which text.
        segment: Which of its segments.
        text: What is new.
        text_so_far: All of the segment until now; it stands.
    """

    translation: int
    segment: int
    text: str
    text_so_far: str


@dataclass(frozen=True, slots=True)
class SegmentDone:
    """A segment is finished; its text begins with that of its deltas.

    Attributes:
        translation: Which text.
        segment: Which of its segments.
        text: Its translation.
        raw: All that the server said of it.
    """

    translation: int
    segment: int
    text: str
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


Event = Delta | SegmentDone | Answer

_T = TypeVar("_T")


@dataclass(slots=True)
class _Patience:
    """How long a client asks again.

    Attributes:
        seconds: From a call's first failure on.
        max_retries: How often at most; None leaves it to the time.
        has_answered: Whether anything has ever answered this client.
    """

    seconds: float
    max_retries: int | None
    has_answered: bool = False


@dataclass(slots=True)
class _Tries:
    """How much of a call's time and patience is left."""

    deadline: float
    patience: _Patience
    delay: float = _FIRST_DELAY_SECONDS
    num_failed: int = 0
    failing_since: float = 0.0
    last: GossamerError | None = None

    def remaining(self) -> float:
        """Seconds that are left.

        Raises:
            DeadlineExceeded: None are.
        """
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise DeadlineExceeded(f"no answer in time{f'; the last one: {self.last}' if self.last else ''}")
        return seconds

    def wait_after(self, error: GossamerError, response: httpx.Response | None = None) -> float:
        """How long to wait before the next try.

        Raises:
            GossamerError: The error itself, if there is none.
        """
        now = time.monotonic()
        if not self.num_failed:
            self.failing_since = now
        self.num_failed += 1
        self.last = error
        delay = random.uniform(0.5, 1.0) * self.delay  # so that many clients do not come back together
        if response is not None:
            delay = max(delay, _retry_after(response.headers.get("Retry-After")))
        self.delay = min(2 * self.delay, _MAX_DELAY_SECONDS)
        seconds = self.patience.seconds if self.patience.has_answered else min(self.patience.seconds, _STRANGER_SECONDS)
        max_retries = self.patience.max_retries
        if (
            now - self.failing_since >= seconds
            or (max_retries is not None and self.num_failed > max_retries)
            or now + delay >= self.deadline
        ):
            raise error
        return delay


@dataclass(frozen=True, slots=True)
class _Send:
    """A request that is to be sent.

    Attributes:
        body: As JSON.
        seconds: How long its answer may take.
    """

    body: Mapping[str, Any] | None
    seconds: float

    @property
    def timeout(self) -> httpx.Timeout:
        """The same for httpx."""
        return httpx.Timeout(self.seconds, connect=min(self.seconds, _CONNECT_SECONDS))


def _retry_after(value: str | None) -> float:
    """Seconds, from a number or a date."""
    if not value:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0


def _translate_body(
    text: str | Sequence[str],
    *,
    target: str | None,
    source: str | None,
    model: str | None,
    format: Format,
    decoding: Mapping[str, Any] | None,
    return_: Sequence[str],
) -> dict[str, Any]:
    body: dict[str, Any] = {"text": text if isinstance(text, str) else list(text), "format": format}
    body |= {name: value for name, value in (("source", source), ("target", target), ("model", model)) if value}
    if decoding:
        body["decoding"] = dict(decoding)
    if return_:
        body["return"] = list(return_)
    return body


def _detect_body(text: str | Sequence[str], target: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {"text": text if isinstance(text, str) else list(text)}
    return body | {"target": target} if target else body


def _within(body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The request, with the time that is left: the server stops when nobody waits any more."""
    return {**body, "deadline_seconds": round(seconds, 3)}


def _error(response: httpx.Response) -> ApiError:
    try:
        problem = json.loads(response.content)
    except ValueError:
        problem = {}
    return ApiError(response.status_code, problem if isinstance(problem, dict) else {})


def _refuses_deadline(error: ApiError) -> bool:
    """Whether the server allows less time than the caller."""
    return error.status == 422 and any(fault.get("field") == "deadline_seconds" for fault in error.faults)


def _exchange(
    where: str, body: Mapping[str, Any] | None, tries: _Tries, *, has_deadline: bool
) -> Generator[_Send | float, httpx.Response | httpx.TransportError | None, httpx.Response]:
    """One call, with all its tries, free of waiting: yields what to send, or how long to sleep; returns the answer."""
    while True:
        seconds = tries.remaining()
        result = yield _Send(_within(body, seconds) if body is not None and has_deadline else body, seconds)
        if isinstance(result, httpx.ConnectTimeout):
            result = httpx.ConnectError("no connection in time")
        if isinstance(result, httpx.TimeoutException):
            raise DeadlineExceeded(f"no answer in {seconds:.3g} seconds") from result
        if isinstance(result, httpx.LocalProtocolError):  # a header that cannot be sent: no try will
            raise ConnectionFailed(f"{where}: {result}") from result
        if isinstance(result, httpx.TransportError):
            fault = " cannot be reached" if isinstance(result, httpx.ConnectError) else ""
            yield tries.wait_after(ConnectionFailed(f"{where}{fault}: {result}"))
            continue
        assert result is not None
        tries.patience.has_answered = True
        if result.is_success:
            return result
        error = _error(result)
        if has_deadline and _refuses_deadline(error):
            has_deadline = False
        elif result.status_code in _RETRIED_STATUSES:
            yield tries.wait_after(error, result)
        else:
            raise error


@contextmanager
def _understanding(status: int) -> Iterator[None]:
    """Where an answer is read.

    Raises:
        ApiError: It is no answer of a server of this kind: a page of something in between, perhaps.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        problem = {"detail": "what answers here is no Gossamer server", "type": "not-understood"}
        raise ApiError(status, problem) from error


def _answer(content: Mapping[str, Any]) -> Answer:
    return Answer(tuple(map(_translation, content["translations"])), content["source"], content["target"], content)


def _translation(content: Mapping[str, Any]) -> Translation:
    detected = content.get("detected")
    return Translation(
        content["text"],
        Detection(detected["language"], detected["confidence"]) if detected else None,
        tuple(content.get("alternatives") or ()),
        tuple(warning["code"] for warning in content.get("warnings") or ()),
        bool(content.get("windowed")),
        bool(content.get("truncated")),
        content.get("score"),
        content,
    )


def _models(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(content["models"])


def _detections(content: Mapping[str, Any]) -> list[Detection]:
    return [
        Detection(found["language"], found["confidence"], found.get("looks_like")) for found in content["detections"]
    ]


class _Events:
    """Bytes of a stream to events."""

    def __init__(self) -> None:
        self._name = ""
        self._rest = b""
        self._is_complete = False

    def push(self, chunk: bytes) -> Iterator[Event]:
        """The events that end with this.

        Raises:
            ApiError: The stream ended with an error, or is none.
        """
        # By line feeds alone: text may hold other signs at which `str.splitlines` parts lines.
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            kind, _, value = line.rstrip(b"\r").partition(b": ")
            if kind == b"event":
                self._name = value.decode(errors="replace")
            elif kind == b"data":
                with _understanding(200):
                    event = self._event(json.loads(value))
                if event is not None:
                    yield event

    def close(self) -> None:
        """What is to be said when no more comes.

        Raises:
            ConnectionFailed: The answer has not come.
        """
        if not self._is_complete:
            raise ConnectionFailed("the stream ended before the answer")

    def _event(self, content: Mapping[str, Any]) -> Event | None:
        match self._name:
            case "token":
                return Delta(content["translation"], content["segment"], content["delta"], content["text"])
            case "segment":
                return SegmentDone(content["translation"], content["segment"], content["text"], content)
            case "done":
                self._is_complete = True
                return _answer(content)
            case "error":
                raise ApiError(content.get("status", 500), content)
        return None


@contextmanager
def _reading_stream() -> Iterator[_Events]:
    """Where a stream is read; what goes wrong with the connection is an error of ours."""
    events = _Events()
    try:
        yield events
    except httpx.TimeoutException as error:
        raise DeadlineExceeded(f"no answer in time: {error}") from error
    except httpx.TransportError as error:
        raise ConnectionFailed(f"the stream broke off: {error}") from error
    events.close()


class _Shared:
    """What both clients are told, and what they make of it."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        timeout_seconds: float,
        patience_seconds: float,
        max_retries: int | None,
    ) -> None:
        try:
            url = httpx.URL(base_url)
        except httpx.InvalidURL as error:
            raise ValueError(f"base_url is {base_url!r}; allowed is an address ({error})") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"base_url is {base_url!r}; allowed is an address such as http://127.0.0.1:8000")
        self._base_url = base_url
        self._timeout_seconds = timeout_seconds
        self._patience = _Patience(patience_seconds, max_retries)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def _tries(self, timeout_seconds: float | None) -> _Tries:
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        return _Tries(time.monotonic() + seconds, self._patience)


class Client(_Shared):
    """Waits for each answer. May be shared by threads; `close` it, or use it as a context manager."""

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        timeout_seconds: float = 60.0,
        patience_seconds: float = _PATIENCE_SECONDS,
        max_retries: int | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Says where the server is.

        Args:
            base_url: Of the server.
            api_key: If it needs one.
            timeout_seconds: The longest that a call may last, all its tries together.
            patience_seconds: How long a call is tried again while the server is busy, not ready, or out of reach; a
                few seconds of it where nothing has ever answered this client. 0 is never.
            max_retries: How often at most; None leaves it to the patience.
            transport: How requests are sent, for proxies and tests.

        Raises:
            ValueError: `base_url` is no address.
        """
        super().__init__(base_url, api_key, timeout_seconds, patience_seconds, max_retries)
        self._http = httpx.Client(base_url=base_url, headers=self._headers, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the connections."""
        self._http.close()

    def translate(
        self,
        text: str | Sequence[str],
        *,
        target: str | None = None,
        source: str | None = None,
        model: str | None = None,
        format: Format = "text",
        decoding: Mapping[str, Any] | None = None,
        return_: Sequence[str] = (),
        timeout_seconds: float | None = None,
    ) -> Answer:
        """Translates a text, or several together.

        Args:
            text: One text, or several.
            target: Code of the language to translate to; needed if several can be.
            source: Code of the language it is in; `auto`, or nothing where several can be meant, finds it out.
            model: Name of the model; needed if several fit.
            format: What the text is.
            decoding: How to search: `beam_size`, `num_hypotheses`, ... as docs/api.md says.
            return_: More about each translation: `segments`, `scores`, `tokens`, `alignment`; it is in `raw`.
            timeout_seconds: For this call, instead of the client's.

        Raises:
            ApiError: The server refused, or failed.
            ConnectionFailed: It cannot be reached.
            DeadlineExceeded: Time was up.
        """
        body = _translate_body(
            text, target=target, source=source, model=model, format=format, decoding=decoding, return_=return_
        )
        return self._request("POST", "/v1/translate", body, timeout_seconds, _answer, has_deadline=True)

    def stream(
        self,
        text: str | Sequence[str],
        *,
        target: str | None = None,
        source: str | None = None,
        model: str | None = None,
        decoding: Mapping[str, Any] | None = None,
        return_: Sequence[str] = (),
        timeout_seconds: float | None = None,
    ) -> Iterator[Event]:
        """As `translate`, event by event; the last one is the whole answer.

        It is tried again only as long as nothing has come. Whoever stops early closes the iterator, which ends the
        translation.
        """
        body = _translate_body(
            text, target=target, source=source, model=model, format="text", decoding=decoding, return_=return_
        )
        body["stream"] = True
        tries = self._tries(timeout_seconds)
        with ExitStack() as stack:
            response = self._opened(stack, body, tries)
            with _reading_stream() as events:
                for chunk in response.iter_bytes():
                    tries.remaining()
                    yield from events.push(chunk)

    def detect(
        self, text: str | Sequence[str], *, target: str | None = None, timeout_seconds: float | None = None
    ) -> list[Detection]:
        """The language of each text; see `translate` for what may go wrong."""
        body = _detect_body(text, target)
        return self._request("POST", "/v1/detect", body, timeout_seconds, _detections)

    def models(self, *, timeout_seconds: float | None = None) -> list[Mapping[str, Any]]:
        """The loaded models, as docs/api.md describes them."""
        return self._request("GET", "/v1/models", None, timeout_seconds, _models)

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout_seconds: float | None,
        read: Callable[[Mapping[str, Any]], _T],
        *,
        has_deadline: bool = False,
    ) -> _T:
        def send(request: _Send) -> httpx.Response:
            return self._http.request(method, path, json=request.body, timeout=request.timeout)

        exchange = _exchange(self._base_url, body, self._tries(timeout_seconds), has_deadline=has_deadline)
        response = self._run(exchange, send)
        with _understanding(response.status_code):
            answer = read(json.loads(response.content))
        return answer

    def _opened(self, stack: ExitStack, body: Mapping[str, Any], tries: _Tries) -> httpx.Response:
        def send(request: _Send) -> httpx.Response:
            stream = self._http.stream("POST", "/v1/translate", json=request.body, timeout=request.timeout)
            response = stack.enter_context(stream)
            if not response.is_success:
                response.read()
            return response

        return self._run(_exchange(self._base_url, body, tries, has_deadline=True), send)

    def _run(
        self,
        exchange: Generator[_Send | float, httpx.Response | httpx.TransportError | None, httpx.Response],
        send: Callable[[_Send], httpx.Response],
    ) -> httpx.Response:
        reply: httpx.Response | httpx.TransportError | None = None
        while True:
            try:
                step = exchange.send(reply)
            except StopIteration as done:
                response: httpx.Response = done.value
                return response
            try:
                reply = None
                if isinstance(step, float):
                    time.sleep(step)
                else:
                    reply = send(step)
            except httpx.TransportError as error:
                reply = error


class AsyncClient(_Shared):
    """The same for asyncio; `aclose` it, or use it with `async with`."""

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        timeout_seconds: float = 60.0,
        patience_seconds: float = _PATIENCE_SECONDS,
        max_retries: int | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Says where the server is.

        Args:
            base_url: Of the server.
            api_key: If it needs one.
            timeout_seconds: The longest that a call may last, all its tries together.
            patience_seconds: How long a call is tried again while the server is busy, not ready, or out of reach; a
                few seconds of it where nothing has ever answered this client. 0 is never.
            max_retries: How often at most; None leaves it to the patience.
            transport: How requests are sent, for proxies and tests.

        Raises:
            ValueError: `base_url` is no address.
        """
        super().__init__(base_url, api_key, timeout_seconds, patience_seconds, max_retries)
        self._http = httpx.AsyncClient(base_url=base_url, headers=self._headers, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Lets go of the connections."""
        await self._http.aclose()

    async def translate(
        self,
        text: str | Sequence[str],
        *,
        target: str | None = None,
        source: str | None = None,
        model: str | None = None,
        format: Format = "text",
        decoding: Mapping[str, Any] | None = None,
        return_: Sequence[str] = (),
        timeout_seconds: float | None = None,
    ) -> Answer:
        """See `Client.translate`."""
        body = _translate_body(
            text, target=target, source=source, model=model, format=format, decoding=decoding, return_=return_
        )
        return await self._request("POST", "/v1/translate", body, timeout_seconds, _answer, has_deadline=True)

    async def stream(
        self,
        text: str | Sequence[str],
        *,
        target: str | None = None,
        source: str | None = None,
        model: str | None = None,
        decoding: Mapping[str, Any] | None = None,
        return_: Sequence[str] = (),
        timeout_seconds: float | None = None,
    ) -> AsyncGenerator[Event, None]:
        """See `Client.stream`."""
        body = _translate_body(
            text, target=target, source=source, model=model, format="text", decoding=decoding, return_=return_
        )
        body["stream"] = True
        tries = self._tries(timeout_seconds)
        async with AsyncExitStack() as stack:
            response = await self._opened(stack, body, tries)
            with _reading_stream() as events:
                async for chunk in response.aiter_bytes():
                    tries.remaining()
                    for event in events.push(chunk):
                        yield event

    async def detect(
        self, text: str | Sequence[str], *, target: str | None = None, timeout_seconds: float | None = None
    ) -> list[Detection]:
        """See `Client.detect`."""
        body = _detect_body(text, target)
        return await self._request("POST", "/v1/detect", body, timeout_seconds, _detections)

    async def models(self, *, timeout_seconds: float | None = None) -> list[Mapping[str, Any]]:
        """See `Client.models`."""
        return await self._request("GET", "/v1/models", None, timeout_seconds, _models)

    async def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout_seconds: float | None,
        read: Callable[[Mapping[str, Any]], _T],
        *,
        has_deadline: bool = False,
    ) -> _T:
        async def send(request: _Send) -> httpx.Response:
            return await self._http.request(method, path, json=request.body, timeout=request.timeout)

        exchange = _exchange(self._base_url, body, self._tries(timeout_seconds), has_deadline=has_deadline)
        response = await self._run(exchange, send)
        with _understanding(response.status_code):
            answer = read(json.loads(response.content))
        return answer

    async def _opened(self, stack: AsyncExitStack, body: Mapping[str, Any], tries: _Tries) -> httpx.Response:
        async def send(request: _Send) -> httpx.Response:
            stream = self._http.stream("POST", "/v1/translate", json=request.body, timeout=request.timeout)
            response = await stack.enter_async_context(stream)
            if not response.is_success:
                await response.aread()
            return response

        return await self._run(_exchange(self._base_url, body, tries, has_deadline=True), send)

    async def _run(
        self,
        exchange: Generator[_Send | float, httpx.Response | httpx.TransportError | None, httpx.Response],
        send: Callable[[_Send], Awaitable[httpx.Response]],
    ) -> httpx.Response:
        reply: httpx.Response | httpx.TransportError | None = None
        while True:
            try:
                step = exchange.send(reply)
            except StopIteration as done:
                response: httpx.Response = done.value
                return response
            try:
                reply = None
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    reply = await send(step)
            except httpx.TransportError as error:
                reply = error
