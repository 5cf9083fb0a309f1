import pytest

from tests.service.test_server import Server


@pytest.fixture(scope="package")
def running():
    """The address of a running server with the bundled model; one for all tests of this folder."""
    server = Server(GOSSAMER_LOG_LEVEL="warning")
    server.wait_until_ready()
    yield server.address
    server.stop()
