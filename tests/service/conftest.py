import contextlib
import json
import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.settings import BUNDLED_MODELS, Settings
from tests.service.fake_tokenizer import FakeTokenizer
from tests.service.fakes import FakeEngine


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def make_client(engine):
    """Builds a client over an app around the fake engine; its lifespan runs until the test ends."""
    with contextlib.ExitStack() as stack:

        def make(**settings):
            tokenizers = {info.name: FakeTokenizer() for info in engine.model_infos}
            app = create_app(Settings(**settings), engine, tokenizers)
            return stack.enter_context(TestClient(app))

        yield make


@pytest.fixture
def client(make_client):
    return make_client()


@pytest.fixture(scope="session")
def bundled_server():
    """The real server with the bundled model en-fr, in a process of its own; one for all tests."""
    from tests.service.test_server import Server  # pytest rewrites its assertions, if it is not imported before it

    # Others may have the machine's processors; nothing here asks how long a translation takes.
    arguments = ("-m", BUNDLED_MODELS / "en-fr")
    server = Server(*arguments, GOSSAMER_LOG_LEVEL="warning", GOSSAMER_REQUEST_TIMEOUT_SECONDS="600")
    server.wait_until_ready()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def both_server(tmp_path_factory):
    """The real server with en-fr and fr-en; as long as no fr-en comes with it, with en-fr said to be that."""
    from tests.service.test_server import Server

    back = BUNDLED_MODELS / "fr-en"
    if not back.is_dir():
        back = turned(BUNDLED_MODELS / "en-fr", tmp_path_factory.mktemp("models") / "fr-en")
    arguments = ("-m", BUNDLED_MODELS / "en-fr", "-m", back)
    server = Server(*arguments, GOSSAMER_LOG_LEVEL="warning", GOSSAMER_REQUEST_TIMEOUT_SECONDS="600")
    server.wait_until_ready()
    yield server
    server.stop()


def turned(folder, output):
    """A copy of a checkpoint, said to translate the other way."""
    shutil.copytree(folder, output)
    config = json.loads((output / "config.json").read_text(encoding="utf-8"))
    source, target = config["source_language"], config["target_language"]
    config |= {"name": output.name, "source_language": target, "target_language": source}
    (output / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return output


@pytest.fixture(scope="session")
def both_ways(tmp_path_factory):
    """The folders of the tiny checkpoint, and of the same one said to translate the other way."""
    tiny = Path(__file__).resolve().parents[1] / "data" / "tiny_checkpoint"
    return tiny, turned(tiny, tmp_path_factory.mktemp("models") / "tiny-back")
