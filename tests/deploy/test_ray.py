"""A real Ray cluster of two nodes on this machine: a file is spread over it, and the server runs on it.

Needs the extra `ray`, which `.ci/run` installs after all other tests: `pip install -e '.[dev,ray]'`.
"""

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from loadtests.servers import free_port
from service.settings import Settings
from tests.service.fakes import FAKE_MODEL

ray = pytest.importorskip("ray", reason="needs the extra ray: pip install -e '.[ray]'")

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests/data/tiny_checkpoint"
PATIENCE_SECONDS = 280

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_health_check_period_ms", "500")
        patch.setenv("RAY_health_check_failure_threshold", "3")
        patch.setenv("OMP_NUM_THREADS", "1")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        yield cluster
        cluster.shutdown()


def add_node(cluster):
    return cluster.add_node(num_cpus=1)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A file, and what a single engine makes of it; no two lines are alike, and some are blank or odd."""
    folder = tmp_path_factory.mktemp("book")
    lines = [f"Line {number}: the spider feels the web, and waits." for number in range(1500)]
    lines[10] = ""
    lines[700] = "\tno end of line follows the last one \N{SPIDER}"
    (folder / "book.txt").write_text("\n".join(lines), encoding="utf-8")
    with (folder / "book.txt").open("rb") as source, (folder / "expected.txt").open("wb") as expected:
        command = [sys.executable, "-m", "service", "translate", "-m", str(TINY), "--source", "en"]
        subprocess.run(command, cwd=ROOT, stdin=source, stdout=expected, check=True, timeout=PATIENCE_SECONDS)
    return folder


def start(cluster, book, output, *more):
    command = [sys.executable, "-m", "service", "translate", "-m", TINY, "--source", "en", "--file", book / "book.txt"]
    command += ["--ray", cluster.address, "--ray-cpus", "1", "--output", output, *more]
    return subprocess.Popen(
        [str(part) for part in command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process):
    try:
        output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    return process.returncode, output + (errors or "")


def wait_for_lines(process, output, num_lines):
    note = output.with_name(output.name + ".progress")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not note.exists() or json.loads(note.read_text())["lines"] < num_lines:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_node_that_is_killed_in_the_middle_costs_no_line_and_doubles_none(cluster, book, tmp_path):
    node = add_node(cluster)
    process = start(cluster, book, tmp_path / "out.txt", "--ray-workers", "2")
    wait_for_lines(process, tmp_path / "out.txt", 1)
    cluster.remove_node(node, allow_graceful=False)
    code, told = end(process)
    assert code == 0, told
    assert "1 worker was lost" in told
    assert (tmp_path / "out.txt").read_bytes() == (book / "expected.txt").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_a_driver_that_is_killed_goes_on_where_it_was(cluster, book, tmp_path):
    output = tmp_path / "out.txt"
    process = start(cluster, book, output, "--ray-workers", "1")
    wait_for_lines(process, output, 100)
    process.send_signal(signal.SIGKILL)
    end(process)
    with output.open("ab") as file:
        file.write(b"half a line that no note tells of")
    lines = json.loads((tmp_path / "out.txt.progress").read_text())["lines"]
    assert 100 <= lines < 1499

    code, told = end(start(cluster, book, output, "--ray-workers", "1", "--beam-size", "2"))
    assert code == 2
    assert "was begun with options" in told
    code, told = end(start(cluster, book, output, "--ray-workers", "1"))
    assert (code, told) == (0, f"going on after line {lines}\n")
    assert output.read_bytes() == (book / "expected.txt").read_bytes()
    code, told = end(start(cluster, book, output))
    assert code == 2
    assert "exists, and is not an unfinished one" in told


def test_a_run_goes_on_only_if_its_models_advice_counts_as_before(tmp_path):
    from service.ray_translate import RayJob, _open_note
    from service.translate_command import InputError

    (tmp_path / "in.txt").touch()

    def job(decoding=None, **settings):
        names = "auto", tmp_path / "in.txt", tmp_path / "out.txt", Settings(**settings)
        return RayJob(*names, source=None, target=None, decoding=decoding or {})

    model = replace(FAKE_MODEL, advised_decoding={"beam_size": 6, "length_penalty": 0.5})
    note = _open_note(job(), [model])
    assert (note.wish["options"][model.name]["beam_size"], note.wish["options"][""]["beam_size"]) == (6, 4)
    note.write(job().note_path)
    assert _open_note(job(), [model]) == note
    # Where the operator says a beam of 4, as it would be without advice, the advice does not count any more.
    for other in (job(default_beam_size=4), job({"beam_size": 4})):
        with pytest.raises(InputError, match="was begun with options"):
            _open_note(other, [model])
    with pytest.raises(InputError, match="was begun with models"):
        _open_note(job(), [replace(model, revision="another")])


def test_what_no_cluster_can_do_is_said(cluster, book, tmp_path):
    code, told = end(start(cluster, book, tmp_path / "out.txt", "--ray-cpus", "64"))
    assert code == 2
    assert "a worker needs 64" in told


def ask(port, text, seconds=PATIENCE_SECONDS, path="/v1/translate"):
    body = json.dumps({"text": text, "source": "en"}).encode() if text else None
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def serve(tmp_path, cluster, port, **deployment):
    """Starts the server as deploy/ray/serve.yaml says, but for names of this machine, and smaller."""
    configuration = yaml.safe_load((ROOT / "deploy/ray/serve.yaml").read_text(encoding="utf-8"))
    configuration["proxy_location"] = "HeadOnly"  # both nodes are this machine, with the same ports
    configuration["http_options"] |= {"host": "127.0.0.1", "port": port}
    (application,) = configuration["applications"]
    variables = application["runtime_env"]["env_vars"]
    del variables["GOSSAMER_KEYS_FILE"]
    variables |= {"GOSSAMER_ALLOW_OPEN": "true", "GOSSAMER_MODELS": str(TINY), "GOSSAMER_TORCH_THREADS": "1"}
    (options,) = application["deployments"]
    options["ray_actor_options"]["num_cpus"] = 0.9  # the rest is for Serve's own
    options.update(deployment)
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    command = [sys.executable, "-m", "ray.serve.scripts", "run", str(path), "--address", cluster.address]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def wait_until(condition, process):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()[0][-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.2)


def num_replicas(cluster):
    """How many are running, as Serve says."""
    code = (
        f"import ray; from ray import serve; ray.init({cluster.address!r}, namespace='serve', logging_level='error');"
        "status = serve.status().applications['gossamer'].deployments['Gossamer'];"
        "print(status.replica_states.get('RUNNING', 0))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    return int(result.stdout.split()[-1]) if result.returncode == 0 else 0


def test_the_server_scales_over_nodes_pushes_back_and_survives_a_lost_one(cluster, tmp_path):
    node = add_node(cluster)
    port = free_port()
    scaling = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 1, "upscale_delay_s": 0.5}
    process = serve(tmp_path, cluster, port, autoscaling_config=scaling, max_ongoing_requests=2, max_queued_requests=4)
    try:
        wait_until(lambda: ask(port, "Hello.")[0] == 200, process)
        assert num_replicas(cluster) == 1
        status, page = ask(port, None, path="/")
        assert status == 200
        assert "Gossamer" in page
        assert "gossamer_ready 1.0" in ask(port, None, path="/metrics")[1]

        text = " ".join(["They would rather walk than wait another hour for the bus."] * 40)
        expected = json.loads(ask(port, text)[1])["translations"][0]["text"]
        found = []
        with concurrent.futures.ThreadPoolExecutor(32) as pool:

            def is_scaled():
                found.extend(pool.map(lambda _: ask(port, text), range(64)))
                return num_replicas(cluster) == 2

            wait_until(is_scaled, process)
        answers = [json.loads(body)["translations"][0]["text"] for status, body in found if status == 200]
        assert set(answers) == {expected}
        assert {status for status, _ in found} == {200, 503}  # more than there was room for was sent away at once

        cluster.remove_node(node, allow_graceful=False)
        wait_until(lambda: all(ask(port, "Hello.", 20)[0] == 200 for _ in range(10)), process)
        assert json.loads(ask(port, text)[1])["translations"][0]["text"] == expected
    finally:
        process.terminate()  # not SIGINT, which what runs in the background of a shell script ignores
        end(process)


def test_serve_waits_for_a_replica_that_stops_as_long_as_the_server_may_take(monkeypatch):
    from service.ray_serve import app

    monkeypatch.setenv("GOSSAMER_ALLOW_OPEN", "true")
    for grace in ("7", "120"):
        monkeypatch.setenv("GOSSAMER_STOP_GRACE_SECONDS", grace)
        deployment = app({})._bound_deployment
        assert deployment._deployment_config.graceful_shutdown_timeout_s == float(grace) + 10
    configuration = yaml.safe_load((ROOT / "deploy/ray/serve.yaml").read_text(encoding="utf-8"))
    (options,) = configuration["applications"][0]["deployments"]
    assert "graceful_shutdown_timeout_s" not in options  # it would win


def test_settings_that_cannot_be_used_are_told_before_a_replica_starts(monkeypatch):
    from service.ray_serve import app
    from service.settings import SettingsError

    monkeypatch.delenv("GOSSAMER_ALLOW_OPEN", raising=False)
    monkeypatch.setenv("GOSSAMER_STOP_GRACE_SECONDS", "soon")
    with pytest.raises(SettingsError, match="GOSSAMER_STOP_GRACE_SECONDS"):
        app({})
