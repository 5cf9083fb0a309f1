"""The image, built and run as a stranger would: read-only, as some user, without rights, without a network of its own.

Needs root, Debian's buildah, podman, runc and mmdebstrap, and some minutes, so it runs only where it is asked to:

    GOSSAMER_TEST_CONTAINER=1 make test ARGS=tests/deploy/test_container.py
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("buildah", "podman", "runc", "mmdebstrap")
PATIENCE_SECONDS = 1800
MOST_BYTES = 1_300_000_000
"""PyTorch's CPU build is most of it."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("GOSSAMER_TEST_CONTAINER"), reason="GOSSAMER_TEST_CONTAINER is not set"),
    pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason=f"needs {', '.join(TOOLS)}"),
]


class Containers:
    """A place for images of our own, and the tools that work on it."""

    def __init__(self, folder):
        self._storage = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]
        self._environ = os.environ | {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

    def command(self, tool, *arguments):
        runtime = ["--runtime", "runc", "--cgroup-manager", "cgroupfs"] if tool == "podman" else []
        return [tool, *self._storage, *runtime, *map(str, arguments)]

    def call(self, tool, *arguments, check=True):
        result = subprocess.run(
            self.command(tool, *arguments), env=self._environ, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
        assert not check or result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
        return result

    def start(self, *arguments):
        return subprocess.Popen(
            self.command("podman", *arguments),
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def pip_arguments():
    """What this machine's pip is told about where packages are, for the pip in the build."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    found = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    arguments = []
    for name in ("cert", "find-links", "constraint"):
        value = found.get(f":env:.{name}", found.get(f"global.{name}", "")).strip("'\"")
        if value and Path(value).exists():
            place = Path(value).resolve()
            folder = place if place.is_dir() else place.parent
            arguments += ["-v", f"{folder}:{folder}:ro", "--build-arg", f"PIP_{name.replace('-', '_').upper()}={place}"]
    return arguments


@pytest.fixture(scope="module")
def containers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("containers")
    containers = Containers(folder)
    base = os.environ.get("GOSSAMER_TEST_BASE_IMAGE")
    if base is None:
        archive = folder / "base.tar"
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv", "bookworm", str(archive)],
            check=True,
            timeout=PATIENCE_SECONDS,
        )
        containers.call("podman", "import", "--quiet", archive, "localhost/base")
        base = "localhost/base"
    containers.call(
        "buildah",
        "build",
        "--network=host",
        *pip_arguments(),
        "--build-arg",
        f"BASE_IMAGE={base}",
        "--build-arg",
        "REVISION=tested",
        "--tag",
        "localhost/gossamer",
        ROOT,
    )
    yield containers
    shutil.rmtree(folder, ignore_errors=True)


RUN = (
    *("run", "--rm", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges"),
    *("--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"),
)


@pytest.fixture(scope="module")
def server(containers):
    """A running container: its address, its process, and what it has printed by the end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"GOSSAMER_HOST": "127.0.0.1", "GOSSAMER_PORT": port, "GOSSAMER_TORCH_THREADS": 1}
    variables = [part for name, value in settings.items() for part in ("--env", f"{name}={value}")]
    process = containers.start(*RUN, "--name", "tested", "--user", "12345:54321", *variables, "localhost/gossamer")
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 300
    while ask(address + "/readyz")[0] != 200:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    yield address, process
    if process.poll() is None:
        containers.call("podman", "kill", "tested", check=False)
        process.wait(60)


def ask(url, body=None):
    request = urllib.request.Request(url, body and json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_it_translates_and_is_scraped(server):
    address, _ = server
    status, answer = ask(address + "/v1/translate", {"text": "Where is the train station?", "target": "fr"})
    assert status == 200
    assert "gare" in json.loads(answer)["translations"][0]["text"]
    assert "gossamer_ready 1.0" in ask(address + "/metrics")[1]


def test_it_runs_as_any_user_on_a_file_system_that_cannot_be_written(containers, server):
    assert containers.call("podman", "exec", "tested", "id", "-u").stdout.strip() == "12345"
    code = "import pathlib; pathlib.Path('/gossamer/x').write_text('')"
    written = containers.call("podman", "exec", "tested", "python", "-c", code, check=False)
    assert "Read-only file system" in written.stderr or "Permission denied" in written.stderr


def test_the_health_check_of_the_image_works(containers, server):
    image = json.loads(containers.call("podman", "inspect", "--type", "image", "localhost/gossamer").stdout)[0]
    file = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    command = json.loads(file.split("HEALTHCHECK", 1)[1].split("CMD", 1)[1].splitlines()[0])
    assert containers.call("podman", "exec", "tested", *command).returncode == 0
    assert image["Config"]["Labels"]["org.opencontainers.image.revision"] == "tested"
    assert image["Config"]["User"] not in ("", "root", "0")
    assert image["Size"] < MOST_BYTES


def test_sigterm_stops_it_in_order(containers, server):
    _, process = server
    started = time.monotonic()
    containers.call("podman", "kill", "--signal", "TERM", "tested")
    assert process.wait(60) == 0
    assert time.monotonic() - started < 60
    lines = [json.loads(line) for line in process.stdout.read().splitlines() if line.startswith("{")]
    assert any(line["message"].startswith("ready, with en-fr") for line in lines)


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        (["--env", "GOSSAMER_PORT=0"], "GOSSAMER_ALLOW_OPEN"),
        (["--env", "GOSSAMER_PORT=0", "--env", "GOSSAMER_ALLOW_OPEN=true", "--env", "GOSSAMER_DEVICE=cuda"], "cuda"),
    ],
)
def test_what_it_must_not_do_quietly_ends_the_start(containers, variables, part):
    process = containers.start(*RUN, *variables, "localhost/gossamer")
    try:
        assert process.wait(300) != 0
    finally:
        process.send_signal(signal.SIGKILL)
    assert part in process.stdout.read()
