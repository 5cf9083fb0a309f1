"""Server processes that a load test starts itself, measures from outside, and stops."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from loadtests.client import Client
from service.settings import BUNDLED_MODELS

_STOP_SECONDS = 90.0


class ServerFailed(RuntimeError):
    """A server did not come up, or ended; the message has the end of its log."""


class ServerProcess:
    """One server on a free port of this machine."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        ready_path: str = "/readyz",
        *,
        port: int | None = None,
        log: IO[bytes] | None = None,
    ) -> None:
        """Start it, and wait for nothing.

        Args:
            name: For messages.
            command: `{port}` stands for the port.
            environment: Besides what this process has, `GOSSAMER_*` left out: a test means what it says.
            ready_path: Answers 200 when it is ready.
            port: Default: a free one.
            log: Where it writes, if that is not to be read.
        """
        self.name, self.port, self.ready_path = name, port or free_port(), ready_path
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("GOSSAMER_")}
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [part.format(port=self.port) for part in command],
            env={**inherited, **(environment or {})},
            stdout=log or self._log,
            stderr=subprocess.STDOUT,
        )
        self.client = Client("127.0.0.1", self.port)

    async def wait_until_ready(self, seconds: float = 300.0) -> None:
        """Until its `ready_path` says so.

        Raises:
            ServerFailed: When it ends before, or takes longer.
        """
        import asyncio

        deadline = time.monotonic() + seconds
        while (await self.client.get(self.ready_path)).status != 200:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} did not get ready:\n{self.log_end()}")
            await asyncio.sleep(0.1)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def peak_memory_bytes(self) -> int | None:
        """The most memory that the process has held so far; None where the system does not say."""
        return peak_memory_bytes(self._process.pid)

    def cpu_seconds(self) -> float:
        """Processor time that it has used so far, all its threads together; NaN where the system does not say."""
        try:
            # The name, which comes second, may hold anything but ends with the last bracket.
            fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return math.nan
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_end(self) -> str:
        """The last lines that it wrote."""
        written = os.pread(self._log.fileno(), 1_000_000, 0)  # the process shares the file's place: do not move it
        return b"\n".join(written.splitlines()[-20:]).decode(errors="replace")

    def stop(self) -> int:
        """SIGTERM, and SIGKILL if that is not enough; gives the exit status."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        return self._process.returncode


def gossamer_server(
    model: Path | None = None,
    environment: Mapping[str, str] | None = None,
    name: str = "gossamer",
    *,
    untrained: bool = False,
    module: str = "service",
    port: int | None = None,
    log: IO[bytes] | None = None,
) -> ServerProcess:
    """The real server, as `gossamer serve` starts it, from this checkout; `untrained` is for random weights.

    Without a model it is the one from English, whatever else comes along: what is asked here is English.
    """
    command = [sys.executable, "-m", "loadtests.untrained" if untrained else module, "serve", "--port", "{port}"]
    return ServerProcess(
        name,
        [*command, "--model", str(model or BUNDLED_MODELS / "en-fr")],
        {"GOSSAMER_LOG_LEVEL": "warning", **(environment or {})},
        port=port,
        log=log,
    )


def end_in_order() -> None:
    """SIGTERM ends this process as an exit does: what `finally` stops, is stopped, and no server stays behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def peak_memory_bytes(pid: int | str = "self") -> int | None:
    """The largest resident set of a process so far; None where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
    return found[0] if found else None
