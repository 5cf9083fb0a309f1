"""The dashboard, the rules and the scrape configuration, against the real Prometheus and the real server."""

import json
import math
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.service.test_server import TINY, Server

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus"
DASHBOARD = json.loads((ROOT / "deploy/grafana/gossamer.json").read_text(encoding="utf-8"))
PATIENCE_SECONDS = 120


def dashboard_expressions():
    return [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def alert_expressions():
    """Each `expr` of the rules, as one line: what the file's own tests do not look at is whether metrics are there."""
    text = (RULES / "gossamer.rules.yml").read_text(encoding="utf-8")
    return re.findall(r"expr: (?:>-\n)?((?:.|\n)*?)\n +for:", text)


def needs(command):
    path = shutil.which(command)
    if path is None:
        pytest.skip(f"{command} is not installed (Debian's package prometheus has it)")
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "rules", "gossamer.rules.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "gossamer.rules.test.yml"],
    ],
)
def test_promtool_is_content(arguments):
    result = subprocess.run([needs("promtool"), *arguments], cwd=RULES, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_has_a_test():
    tested = set(re.findall(r"alertname: (\w+)", (RULES / "gossamer.rules.test.yml").read_text(encoding="utf-8")))
    alerts = set(re.findall(r"alert: (\w+)", (RULES / "gossamer.rules.yml").read_text(encoding="utf-8")))
    assert alerts
    assert tested == alerts


def test_dashboard_and_rules_name_only_metrics_that_are_documented():
    documented = set(
        re.findall(r"`((?:gossamer|process)_\w+)`", (ROOT / "docs/metrics.md").read_text(encoding="utf-8"))
    )
    expressions = [expression for _, expression in dashboard_expressions()] + alert_expressions()
    used = {name for expression in expressions for name in re.findall(r"\b(?:gossamer|process)_\w+", expression)}
    assert len(used) > 20
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in used} <= documented


def test_every_panel_has_a_title_a_unit_and_a_place_of_its_own():
    places = set()
    for panel in DASHBOARD["panels"]:
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["fieldConfig"]["defaults"]["unit"]
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & places, panel["title"]
        places |= cells


class Prometheus:
    """A real one, that scrapes one server twice a second."""

    def __init__(self, command, folder, target):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        config = (RULES / "prometheus.yml").read_text(encoding="utf-8")
        config = config.replace("gossamer:8000", target).replace("15s", "500ms")
        (folder / "prometheus.yml").write_text(config, encoding="utf-8")
        shutil.copy(RULES / "gossamer.rules.yml", folder)
        self.process = subprocess.Popen(
            [
                command,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self.address}",
                "--enable-feature=exemplar-storage",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as response:
            return json.loads(response.read())["data"]

    def values(self, expression):
        result = self.ask("query", query=expression)
        samples = (
            [result["result"]] if result["resultType"] == "scalar" else [item["value"] for item in result["result"]]
        )
        return [float(value) for _, value in samples]

    def wait_for(self, is_it):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if is_it():
                    return
            except OSError:
                assert self.process.poll() is None, "prometheus ended"
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def stop(self):
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """Has seen a server before, during and after a little of each kind of traffic."""
    command = needs("prometheus")
    server = Server("-m", TINY)
    prometheus = None
    try:
        server.wait_until_ready()
        prometheus = Prometheus(command, tmp_path_factory.mktemp("prometheus"), server.address.removeprefix("http://"))
        prometheus.wait_for(lambda: prometheus.values("up == 1"))
        scrapes = "count_over_time(gossamer_ready[10m])"
        for number in range(3):
            before = prometheus.values(scrapes)[0]
            for length in (1, 8, 40):
                text = "The spider feels the web. " * length
                body = {"text": text, "decoding": {"beam_size": 2, "max_target_tokens": 8 + number}}
                assert server.get("/v1/translate", body)[0] == 200
            assert server.get("/v1/translate", {"text": 5})[0] == 422
            prometheus.wait_for(lambda before=before: prometheus.values(scrapes)[0] > before + 2)
        yield prometheus
    finally:
        if prometheus is not None:
            prometheus.stop()
        server.stop()


@pytest.mark.parametrize(("title", "expression"), dashboard_expressions())
def test_each_expression_of_the_dashboard_returns_data(prometheus, title, expression):
    asked = expression.replace("$job", ".*").replace("$instance", ".*").replace("$__rate_interval", "5m")
    assert "$" not in asked
    values = prometheus.values(asked)
    assert any(math.isfinite(value) for value in values), f"{title}: {values}"


def test_the_rules_are_evaluated_and_nothing_burns(prometheus):
    def are_evaluated():
        rules = prometheus.ask("rules")["groups"][0]["rules"]
        return rules and all(rule["health"] == "ok" for rule in rules)

    prometheus.wait_for(are_evaluated)
    rules = prometheus.ask("rules")["groups"][0]["rules"]
    assert len(rules) == len(alert_expressions())
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


def test_exemplars_lead_to_requests(prometheus):
    found = prometheus.ask(
        "query_exemplars",
        query="gossamer_request_duration_seconds_bucket",
        start=time.time() - 600,
        end=time.time() + 5,
    )
    assert any(exemplar["labels"].get("request_id") for series in found for exemplar in series["exemplars"])
