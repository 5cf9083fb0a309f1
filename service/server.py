"""Runs the app in this process: listens, says what to open, and stops in order."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import uvicorn

from service.app import create_app
from service.engine.errors import EngineDead
from service.engine.interface import Engine
from service.engine.work import open_works
from service.protocol import patient_protocol
from service.settings import Settings

logger = logging.getLogger(__name__)

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # listened on, but not to be opened in a browser

SWITCH_INTERVAL_SECONDS = 0.0005
"""How long a thread may keep Python's lock while another one wants it; Python's own choice is ten times that."""

_KEEP_ALIVE_SECONDS = 75
"""How long a connection is kept for the next request. Clients that look every 5 seconds meet uvicorn's own end of 5."""

_SAME_SIGNAL_SECONDS = 0.25
"""A signal so soon after another one is the same: a terminal and a program between the two both pass it on."""

_LAST_ANSWERS_SECONDS = 5
"""How long answers may take to be sent after the engine has ended every request."""


class ListenError(OSError):
    """The address cannot be listened on; the message says why."""


def run(settings: Settings, announce: Callable[[str], None]) -> bool:
    """Serves until SIGTERM, SIGINT, or the death of the engine.

    Args:
        settings: As read at start.
        announce: Gets a text for whoever started the server, once it listens.

    Returns:
        Whether all went well: False if the engine died.

    Raises:
        SettingsError: If a model's folder cannot be used.
        ListenError: If the address cannot be listened on.
    """
    server: _Server | None = None

    def on_engine_dead(_death: EngineDead) -> None:
        assert server is not None
        server.fail()

    # Of all threads that want Python's lock the engine is the one that must not wait long for it.
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    app = create_app(settings, on_engine_dead=on_engine_dead)
    config = uvicorn.Config(
        app,
        http=patient_protocol(settings.receive_timeout_seconds),
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_LAST_ANSWERS_SECONDS,
    )
    with _listen(settings.host, settings.port) as listener:
        port = listener.getsockname()[1]
        server = _Server(config, settings.stop_grace_seconds, lambda: announce(_welcome(settings.host, port)))
        # uvicorn repeats a signal when it has finished; without these, the process would end by it and not with 0.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _exit_cleanly)
        asyncio.run(server.serve(sockets=[listener]))
    return not server.failed


class _Server(uvicorn.Server):
    """Stops in order: the engine first, with the port still open, so that everyone hears why nothing is taken."""

    def __init__(self, config: uvicorn.Config, grace_seconds: float, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self.failed = False
        self._grace_seconds = grace_seconds
        self._on_listening = on_listening
        self._told_at = math.nan
        self._is_hurried = asyncio.Event()

    def fail(self) -> None:
        """Ends the server because the engine cannot go on."""
        self.failed = True
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        await super().startup(sockets)
        if self.started:
            self._on_listening()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins to stop; a second signal ends the grace, a third one waits for no answer to be sent.

        uvicorn's own second one would cancel what runs, and answer it with 500.
        """
        if time.monotonic() - self._told_at < _SAME_SIGNAL_SECONDS:
            return
        self._told_at = time.monotonic()
        if not self.should_exit:
            super().handle_exit(sig, frame)
        elif not self._is_hurried.is_set():
            asyncio.get_running_loop().call_soon_threadsafe(self._is_hurried.set)
        else:
            self.force_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets the engine finish what runs, then takes no more connections and waits for the last answers.

        While the engine finishes, probes hear that it is stopping, and new requests get 503 with `Retry-After`.
        """
        engine: Engine = self.config.app.state.services.engine  # type: ignore[union-attr]  # the app of `run`
        logger.info("stopping: %d requests have %g seconds to end", len(open_works()), self._grace_seconds)
        stopping = asyncio.create_task(engine.stop(self._grace_seconds))
        hurried = asyncio.create_task(self._end_grace(engine))
        while not stopping.done():
            await asyncio.wait({stopping}, timeout=1)
            await self.on_tick(0)  # the answers' date
        hurried.cancel()
        await stopping
        await super().shutdown(sockets)

    async def _end_grace(self, engine: Engine) -> None:
        await self._is_hurried.wait()
        logger.warning("told a second time: stopping at once, and refusing the %d requests that run", len(open_works()))
        await engine.stop(0)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=2048)
        # Handed down to connections, for which asyncio does it only where the listener was made with the protocol's
        # number: otherwise an answer's body waits 40 ms for the client to acknowledge its head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise ListenError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from error


def _welcome(host: str, port: int) -> str:
    shown = _ANY_ADDRESS.get(host, host)
    base = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"
    body = """'{"text": "Where is the train station?"}'"""
    return (
        f"Gossamer listens; {base}/readyz tells when the model is loaded.\n"
        f"  page   {base}/\n"
        f"  docs   {base}/docs\n"
        f"  try    curl {base}/v1/translate -H 'Content-Type: application/json' -d {body}\n"
        "Ctrl-C stops it, a second one at once."
    )


def _exit_cleanly(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)
