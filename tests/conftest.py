"""What all tests share, and how several processes divide them (`pytest -n`, as `make test` does)."""

import contextlib
import fcntl

import pytest
import torch

# Products of tiny models gain nothing from more threads, and lose much where another process wants a core.
torch.set_num_threads(1)

LONGEST_FIRST = (
    "tests/deploy/test_container.py",
    "tests/service/inspector/",
    "tests/service/test_server.py",
    "tests/loadtests/test_stress.py",
    "tests/service/inspection/",
)
"""With one of these begun last, all other processes would wait for it."""

TOGETHER = (
    ("tests/service/inspection/",),
    ("tests/service/inspector/",),
    ("tests/service/api/dialects/",),
    ("tests/service/test_cases.py", "tests/service/test_faults.py", "tests/service/test_noise.py"),
)
"""Files and folders that share a server, so that one process starts it; all others are dealt out one by one."""


def is_one_of_several(config):
    return hasattr(config, "workerinput")


@pytest.hookimpl(trylast=True)  # after pytest has put together what shares fixtures
def pytest_collection_modifyitems(config, items):
    if is_one_of_several(config):

        def place(item):
            found = (number for number, start in enumerate(LONGEST_FIRST) if item.nodeid.startswith(start))
            return next(found, len(LONGEST_FIRST))

        items.sort(key=place)


@pytest.hookimpl(optionalhook=True)  # pytest alone runs the tests as well
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.split("::", 1)[0]
            return next((" ".join(starts) for starts in TOGETHER if path.startswith(starts)), path)

    config.option.loadscopereorder = False  # it would begin with the files of the most tests
    return ByFile(config, log)


@contextlib.contextmanager
def turn(folder, is_alone):
    """Has the machine alone, or shares it; a second lock, so that nobody overtakes who waits for the first."""
    with (folder / "queue.lock").open("w") as queue, (folder / "machine.lock").open("w") as machine:
        fcntl.flock(queue, fcntl.LOCK_EX)
        fcntl.flock(machine, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        fcntl.flock(queue, fcntl.LOCK_UN)
        yield
        fcntl.flock(machine, fcntl.LOCK_UN)  # closing would not do it, where a process that was forked has it open


@pytest.fixture(autouse=True)
def _those_that_measure_time_run_alone(request, tmp_path_factory):
    if not is_one_of_several(request.config):
        yield
        return
    folder = tmp_path_factory.getbasetemp().parent  # of all processes
    with turn(folder, request.node.get_closest_marker("alone") is not None):
        yield


@pytest.fixture(autouse=True)
def _same_random_numbers_in_every_run():
    torch.manual_seed(1)
