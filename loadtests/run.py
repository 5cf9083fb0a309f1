"""Locust against a server that is started for it, and stopped again: `make load`.

    python -m loadtests.run                                # 8 users, 30 seconds, headless
    python -m loadtests.run --web                          # Locust's page instead, until Ctrl-C
    python -m loadtests.run --users 32 --seconds 120 -- NativeUser OpenLoopUser

The exit status is not 0 if any request failed, if none was made, or if the server did not survive.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

from loadtests.servers import ServerProcess, end_in_order, gossamer_server

_LOCUSTFILE = Path(__file__).resolve().parent / "locustfile.py"


async def warm_up(server: ServerProcess) -> None:
    """Ready, and the first requests, which are slower than all others, done."""
    await server.wait_until_ready()
    for path, body in (
        ("/v1/translate", {"text": "Good morning. How are you?", "target": "fr"}),
        ("/v1/attention", {"text": "Good morning.", "target": "fr"}),
        ("/translate", {"q": "Good morning.", "source": "en", "target": "fr"}),
    ):
        answer = await server.client.post(path, body)
        if answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}: {answer.body[:300]!r}")
    await server.client.close()


def main() -> None:
    """Start, warm up, load, stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--web", action="store_true", help="Locust's own page on port 8089, instead of headless")
    parser.add_argument("user", nargs="*", help="user classes; default: all")
    arguments = parser.parse_args()
    end_in_order()
    server = gossamer_server()
    try:
        asyncio.run(warm_up(server))
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "locust", "-f", str(_LOCUSTFILE), *arguments.user]
            command += ["--host", f"http://127.0.0.1:{server.port}"]
            if not arguments.web:
                command += ["--headless", "--users", str(arguments.users), "--spawn-rate", str(arguments.users)]
                command += ["--run-time", f"{arguments.seconds}s", "--stop-timeout", "30", "--only-summary"]
                command += ["--exit-code-on-error", "1", "--csv", str(Path(folder) / "load")]
            status = subprocess.run(command, check=False).returncode
            if status == 0 and not arguments.web and num_requests(Path(folder) / "load_stats.csv") == 0:
                raise SystemExit("no request was made")
        if not asyncio.run(is_alive(server)):
            raise SystemExit(f"the server is gone:\n{server.log_end()}")
    finally:
        server.stop()
    sys.exit(status)


def num_requests(path: Path) -> int:
    """Requests in Locust's summary."""
    with path.open(encoding="utf-8", newline="") as file:
        return sum(int(row["Request Count"]) for row in csv.DictReader(file) if row["Name"] == "Aggregated")


async def is_alive(server: ServerProcess) -> bool:
    """Whether the server still answers."""
    alive = (await server.client.get("/healthz")).status == 200
    await server.client.close()
    return alive


if __name__ == "__main__":
    main()
