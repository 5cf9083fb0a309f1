"""The real server's parts around an imported model with several targets and its makers' advice."""

import json
import time

import pytest
from starlette.testclient import TestClient

from model.checkpoint import load_checkpoint
from model.importers.marian import import_marian
from service.app import create_app
from service.engine.async_engine import AsyncEngine
from service.engine.limits import EngineLimits
from service.engine.runner import Runner
from service.settings import Settings
from tests.model.importers.marian_folders import TAGS, make_model, write_folder

ADVICE = {"beam_size": 3, "length_penalty": 0.6}
TEXT = "The train waits."


class RecordingEngine(AsyncEngine):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.requests = []

    async def submit(self, request):
        self.requests.append(request)
        return await super().submit(request)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("imported")
    write_folder(root / "theirs", make_model(num_tags=len(TAGS)), tags=TAGS)
    config = root / "theirs" / "generation_config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps(values | {"num_beams": 3, "length_penalty": 0.6}))
    import_marian(root / "theirs", root / "ours", name="en-many", source_language="en", target_language="fr")
    return root / "ours"


@pytest.fixture(scope="module")
def client(folder):
    limits = EngineLimits()
    # An engine of the test's own: the server's would refuse a model of random weights as one that translates badly.
    engine = RecordingEngine(lambda: Runner([load_checkpoint(folder)], limits), limits)
    app = create_app(Settings(), engine, {"en-many": load_checkpoint(folder).tokenizer})
    app.state.requests = engine.requests
    with TestClient(app) as client:
        deadline = time.monotonic() + 120
        while not (ready := client.get("/readyz")).is_success:
            assert time.monotonic() < deadline, ready.text
            time.sleep(0.05)
        yield client


def test_its_targets_are_listed(client):
    (info,) = client.get("/v1/models").json()["models"]
    assert (info["target"], info["targets"]) == ("fr", ["fr", "de", "pt_br"])


@pytest.mark.parametrize(("target", "tag"), [(None, ">>fra<<"), ("de", ">>deu<<"), ("pt-BR", ">>pt_br<<")])
def test_a_request_chooses_the_tag_and_is_searched_as_advised(client, folder, target, tag):
    answer = client.post("/v1/translate", json={"text": TEXT, "target": target, "return": ["tokens"]}).json()
    (segment,) = answer["translations"][0]["segments"]
    assert segment["source_tokens"][0]["piece"] == tag
    first = client.app.state.requests.pop(0).sequences[0]
    client.app.state.requests.clear()  # what went wrong, with these random weights, was tried again
    tokenizer = load_checkpoint(folder).tokenizer.for_target(target or "fr")
    assert first.source_ids == tokenizer.encode(TEXT, "en", add_eos=True).ids
    assert {name: getattr(first.options, name) for name in ADVICE} == ADVICE
    assert first.options.max_target_tokens is None
