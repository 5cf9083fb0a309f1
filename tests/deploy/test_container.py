"""The image, built and run as a stranger would: read-only, as some user, without rights, without a network of its own.

Needs root, Debian's buildah, podman, runc and mmdebstrap, and some minutes, so it runs only where it is asked to, as
`.ci/run` does beside all other tests:

    GOSSAMER_TEST_CONTAINER=1 make test ARGS='-n0 tests/deploy/test_container.py'

Where the tools cannot work (no rights, no network for the base image) it skips and says why; that an image cannot be
built, started or stopped is a failure.
"""

import faulthandler
import json
import os
import shutil
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
IMAGE = "localhost/gossamer"
MOST_BYTES = 1_200_000_000
"""PyTorch's CPU build is most of it: docs/deployment.md tells what the rest is."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("GOSSAMER_TEST_CONTAINER"), reason="GOSSAMER_TEST_CONTAINER is not set"),
    pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason=f"needs {', '.join(TOOLS)}"),
]


class Containers:
    """A place for images of our own, and the tools that work on it."""

    def __init__(self, folder):
        self._storage = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]
        # Health checks by a timer need systemd; here they are asked for.
        self._environ = os.environ | {"BUILDAH_ISOLATION": "chroot", "DISABLE_HC_SYSTEMD": "true"}
        self._driver = "overlay"  # the other one copies the whole image at every step
        if self.call("podman", "info", check=False).returncode != 0:
            self._driver = "vfs"

    def command(self, tool, *arguments):
        options = [*self._storage, "--storage-driver", self._driver]
        if tool == "podman":
            options += ["--runtime", "runc", "--cgroup-manager", "cgroupfs"]
        return [tool, *options, *map(str, arguments)]

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

    def remove(self):
        self.call("podman", "rm", "--all", "--force", check=False)
        self.call("podman", "rmi", "--all", "--force", check=False)
        # The driver mounts its folder upon itself.
        subprocess.run(["umount", Path(self._storage[1]) / "overlay"], capture_output=True)


def skip_if_failed(result, what):
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["no reason given"]
        pytest.skip(f"{what}: {lines[-1][-300:]}")


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
    faulthandler.cancel_dump_traceback_later()  # a build may take longer than any test
    folder = tmp_path_factory.mktemp("containers")
    containers = Containers(folder)
    try:
        base = os.environ.get("GOSSAMER_TEST_BASE_IMAGE") or make_base(containers, folder)
        tried = containers.call("podman", *RUN, base, "true", check=False)
        skip_if_failed(tried, "containers cannot run on this machine")
        build = ("build", "--network=host", "--format", "docker", *pip_arguments())  # that format has health checks
        arguments = ("--build-arg", f"BASE_IMAGE={base}", "--build-arg", "REVISION=tested")
        containers.call("buildah", *build, *arguments, "--tag", IMAGE, ROOT)
        yield containers
    finally:
        containers.remove()
        shutil.rmtree(folder, ignore_errors=True)


def make_base(containers, folder):
    """Debian with Python: what the Dockerfile asks for, from packages instead of a registry."""
    archive = folder / "base.tar"
    command = ["mmdebstrap", "--variant=minbase", "--include=python3,python3-venv", "bookworm", archive]
    made = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    skip_if_failed(made, "the base image cannot be made")
    skip_if_failed(containers.call("podman", "import", archive, "localhost/base", check=False), "podman cannot work")
    archive.unlink()
    return "localhost/base"


RUN = (
    *("run", "--rm", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges"),
    *("--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"),
)
WITHOUT_SHELL = tuple(part for shell in ("dash", "bash") for part in ("--volume", f"/dev/null:/usr/bin/{shell}:ro"))


@pytest.fixture(scope="module")
def server(containers):
    """A running container: its address, its process, and what it has printed by the end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"GOSSAMER_HOST": "127.0.0.1", "GOSSAMER_PORT": port, "GOSSAMER_TORCH_THREADS": 1}
    variables = [part for name, value in settings.items() for part in ("--env", f"{name}={value}")]
    process = containers.start(*RUN, *WITHOUT_SHELL, "--name", "tested", "--user", "12345:54321", *variables, IMAGE)
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
    process.stdout.close()


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


def test_it_has_no_shell_here(containers, server):
    assert containers.call("podman", "exec", "tested", "sh", "-c", "true", check=False).returncode != 0


def test_the_image_has_a_health_check_labels_and_a_size(containers, server):
    image = json.loads(containers.call("podman", "inspect", "--type", "image", IMAGE).stdout)[0]
    assert image["Healthcheck"]["Test"][0] == "CMD"
    assert containers.call("podman", "healthcheck", "run", "tested").returncode == 0
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in image["Labels"].items()}
    assert labels["revision"] == "tested"
    assert (labels["title"], labels["licenses"]) == ("Gossamer", "Apache-2.0")
    assert image["Config"]["User"] not in ("", "root", "0")
    assert image["Config"]["StopSignal"] == "SIGTERM"
    assert 300_000_000 < image["Size"] < MOST_BYTES


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
    process = containers.start(*RUN, *variables, IMAGE)
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode != 0
    assert part in output
