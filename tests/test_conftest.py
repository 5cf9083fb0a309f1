"""How several processes divide the tests."""

import fcntl
import threading
import time
from pathlib import Path
from types import SimpleNamespace

from tests.conftest import LONGEST_FIRST, TOGETHER, pytest_collection_modifyitems, turn

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_SECONDS = 60


def test_the_longest_files_are_begun_first_and_all_else_stays_in_its_order():
    names = ["tests/b.py", *reversed(LONGEST_FIRST), "tests/a.py"]
    items = [SimpleNamespace(nodeid=f"{name}::test") for name in names]
    pytest_collection_modifyitems(SimpleNamespace(workerinput={}), items)
    assert [item.nodeid for item in items] == [f"{name}::test" for name in (*LONGEST_FIRST, "tests/b.py", "tests/a.py")]


def test_what_is_named_is_there():
    assert [name for name in (*LONGEST_FIRST, *sum(TOGETHER, ())) if not (ROOT / name).exists()] == []


def test_who_measures_time_has_the_machine_alone_and_is_not_overtaken(tmp_path):
    inside, seen = [], []

    def run(name, is_alone):
        with turn(tmp_path, is_alone):
            inside.append(name)
            time.sleep(0.05)
            seen.append((name, *sorted(set(inside) - {name})))
            inside.remove(name)

    def someone_waits():
        with (tmp_path / "queue.lock").open("w") as queue:
            try:
                fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    threads = [
        threading.Thread(target=run, args=(name, name == "alone"), daemon=True) for name in ("beside", "alone", "other")
    ]
    beside, alone, other = threads
    with turn(tmp_path, is_alone=False):
        beside.start()
        beside.join(PATIENCE_SECONDS)
        assert seen == [("beside",)]
        alone.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not someone_waits():
            assert alone.is_alive() and time.monotonic() < deadline
            time.sleep(0.001)
        other.start()
        other.join(0.2)
        assert seen == [("beside",)]
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert seen == [("beside",), ("alone",), ("other",)]
