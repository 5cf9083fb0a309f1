"""Whoever stops the server waits longer than it lets requests run on; see docs/deployment.md."""

import re
from pathlib import Path

import yaml

from service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
LAST_ANSWERS_SECONDS = 5


def test_by_default_all_that_had_arrived_may_finish():
    assert Settings().stop_grace_seconds >= Settings().request_timeout_seconds


def test_compose_waits_longer_than_the_grace():
    service = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text())["services"]["gossamer"]
    grace = float(service["environment"]["GOSSAMER_STOP_GRACE_SECONDS"])
    assert grace >= Settings().request_timeout_seconds
    assert float(service["stop_grace_period"].removesuffix("s")) > grace + LAST_ANSWERS_SECONDS


def test_the_image_is_done_before_docker_stop_kills_it():
    (grace,) = re.findall(r"GOSSAMER_STOP_GRACE_SECONDS=(\d+)", (ROOT / "Dockerfile").read_text())
    assert int(grace) + 2 < 10
