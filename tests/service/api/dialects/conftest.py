import pytest


@pytest.fixture(scope="package")
def running(both_server):
    """The address of a running server with models of both directions; one for all tests of this folder."""
    return both_server.address
