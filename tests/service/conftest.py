import contextlib

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.settings import Settings
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
    """The real server with the bundled model, in a process of its own; one for all tests."""
    from tests.service.test_server import Server  # pytest rewrites its assertions, if it is not imported before it

    # Others may have the machine's processors; nothing here asks how long a translation takes.
    server = Server(GOSSAMER_LOG_LEVEL="warning", GOSSAMER_REQUEST_TIMEOUT_SECONDS="600")
    server.wait_until_ready()
    yield server
    server.stop()
