"""How many requests and tokens a client may have in a minute; the counting is done by the library `limits`.

A client is a key, or without keys an address. Requests are counted where they are admitted, tokens where they are
given to the engine, by an engine in front of it: so every route counts alike, and a text that is refused costs nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from limits import RateLimitItemPerMinute
from limits.aio.storage import RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.storage import storage_from_string

from service.api.errors import OverRateLimit, RateLimited
from service.engine.forwarding import ForwardingEngine
from service.engine.interface import Engine
from service.engine.request import EngineEvent, EngineRequest, RequestResult

logger = logging.getLogger(__name__)

Unit = Literal["requests", "tokens"]

_STORAGE_PATIENCE_SECONDS = 0.5
_STORAGE_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks.

    Attributes:
        kind: How it is known: by its `key` or its `address`.
        name: The key's id, or the address; of IPv6 the network of 64 bits, which one customer has.
        requests_per_minute: The most it may ask; None for no limit.
        tokens_per_minute: The most source tokens it may have translated; None for no limit.
    """

    kind: Literal["key", "address"]
    name: str
    requests_per_minute: int | None
    tokens_per_minute: int | None


@dataclass(slots=True)
class Admission:
    """A request that was let in.

    Attributes:
        client: Whose it is.
        has_begun: Whether some of its tokens were booked. What follows (a second attempt at a sentence) is booked too,
            but no longer refused: nobody gets half a translation.
    """

    client: Client
    has_begun: bool = False


current_admission: ContextVar[Admission | None] = ContextVar("current_admission", default=None)
"""The request that is being served; None where nobody looked, and nothing is limited."""


class RateLimits:
    """Counts, and refuses what is too much.

    If the place where it counts cannot be reached, nothing is refused: a lost Redis must not end the service. It is
    then left alone for some seconds, so that requests do not wait for it one by one.

    Args:
        storage: `memory://`, or `redis://...` if several replicas count together.
    """

    def __init__(self, storage: str) -> None:
        options: dict[str, Any] = {}
        if not storage.startswith("memory"):
            patience = {
                "socket_timeout": _STORAGE_PATIENCE_SECONDS,
                "socket_connect_timeout": _STORAGE_PATIENCE_SECONDS,
            }
            options = {"implementation": "redispy", **patience}
        self._storage = storage_from_string(f"async+{storage}", **options)
        self._limiter = SlidingWindowCounterRateLimiter(self._storage)
        self._paused_until = 0.0
        self.num_failures = 0

    async def close(self) -> None:
        """Closes connections to the storage; called once, when nothing is counted any more."""
        if isinstance(self._storage, RedisStorage):
            bridge: Any = self._storage.bridge  # its type is that of all clients' bridges
            await bridge.get_connection().aclose()

    async def take(self, client: Client, unit: Unit, cost: int = 1) -> None:
        """Books what a client wants.

        Raises:
            RateLimited: It has to wait.
            OverRateLimit: It wants more at once than it may ever have.
        """
        amount = client.requests_per_minute if unit == "requests" else client.tokens_per_minute
        if amount is None or cost == 0:
            return
        if cost > amount:
            raise OverRateLimit(client.kind, cost, amount)
        if time.monotonic() < self._paused_until:
            return
        item, names = RateLimitItemPerMinute(amount), (client.kind, client.name, unit)
        try:
            async with asyncio.timeout(2 * _STORAGE_PATIENCE_SECONDS):
                if await self._limiter.hit(item, *names, cost=cost):
                    return
                stats = await self._limiter.get_window_stats(item, *names)
        except Exception as error:
            self.num_failures += 1
            self._paused_until = time.monotonic() + _STORAGE_PAUSE_SECONDS
            logger.error("rates cannot be counted, nothing is limited for now: %s", type(error).__name__)
            return
        # At the limit's own pace that many become free; the library tells when the next one does.
        seconds = (cost - stats.remaining) * 60 / amount
        raise RateLimited(client.kind, unit, amount, cost, min(60.0, max(1.0, seconds)))


class LimitedEngine(ForwardingEngine):
    """An `Engine` in front of another that books source tokens before it lets them through.

    Args:
        engine: Does the work.
        limits: Where to book.
    """

    def __init__(self, engine: Engine, limits: RateLimits) -> None:
        super().__init__(engine)
        self._limits = limits

    async def submit(self, request: EngineRequest) -> RequestResult:
        """As `Engine.submit`.

        Raises:
            RateLimited: The client has to wait; nothing was queued.
            OverRateLimit: The client may never have that much.
        """
        await self._book(request)
        return await self._engine.submit(request)

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        """As `Engine.stream`; refusals come with the first event."""
        await self._book(request)
        async with aclosing(self._engine.stream(request)) as events:
            async for event in events:
                yield event

    async def _book(self, request: EngineRequest) -> None:
        admission = current_admission.get()
        if admission is None:
            return
        try:
            await self._limits.take(admission.client, "tokens", request.num_source_tokens)
        except (RateLimited, OverRateLimit):
            if not admission.has_begun:
                raise
        admission.has_begun = True


def address_name(host: str | None) -> str:
    """How an address is counted."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return "unknown"  # a Unix socket has none
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return str(address)
