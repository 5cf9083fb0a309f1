"""The script for machines with a GPU, as far as it goes without one."""

import subprocess
import sys
import time

import pytest
import torch

from loadtests.gpu import EXIT_NO_GPU, Report, measure, run_tests
from loadtests.peers.decode_speed import Work


def script(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "loadtests.gpu", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_ends_with_a_code_of_its_own():
    done = script()
    assert done.returncode == EXIT_NO_GPU == 3
    assert "no GPU, nothing was run: device is cuda, but torch" in done.stdout


@pytest.mark.slow
def test_a_rehearsal_tests_measures_and_prints_the_table():
    done = script("--rehearse", "--rounds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exit status 0" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ours float32, fixed shapes  ")]
    assert all(float(cell.replace(",", "")) > 0 for cell in line.split("shapes")[1].split())


def test_tests_that_are_all_skipped_or_fail_are_a_failure(tmp_path):
    skipped = tmp_path / "test_skipped.py"
    skipped.write_text("import pytest\n\n@pytest.mark.gpu\ndef test_it():\n    pytest.skip('no GPU')\n")
    assert "0 tests were run" in run_tests([str(skipped)], "gpu", 60)
    failing = tmp_path / "test_failing.py"
    failing.write_text("import pytest\n\n@pytest.mark.gpu\ndef test_it():\n    assert False\n")
    assert "pytest ended with 1" in run_tests([str(failing)], "gpu", 60)


class System:
    def __init__(self, fault=None):
        self.fault = fault
        self.is_closed = False

    def run(self, work, sources):
        if self.fault:
            raise self.fault

    def close(self):
        self.is_closed = True


def measured(starters, seconds=60.0):
    work = Work("1 greedy", ((4, 4),))
    report = Report([work.name])
    measure(starters, [work], report, 2, time.monotonic() + seconds)
    return report


def test_what_fails_of_ours_fails_the_run_and_what_fails_of_others_is_noted():
    def missing():
        raise RuntimeError("Library libcublas.so.12 is not found")

    good = System()
    report = measured({"ours": lambda: good, "ours too": lambda: System(MemoryError("no memory")), "ct2": missing})
    assert report.failures == ["ours too: MemoryError: no memory"]
    assert report.notes["ct2"] == "RuntimeError: Library libcublas.so.12 is not found"
    assert report.speeds["ours"]["1 greedy"] > 0
    assert good.is_closed
    assert "libcublas" in report.table()


def test_what_does_not_fit_into_the_time_is_said():
    report = measured({"ours": System}, seconds=-1.0)
    assert report.speeds == {}
    assert "out of time" in report.table()


def test_ratios_are_those_of_the_best_configurations():
    report = Report(["a", "b"], {"ours x": {"a": 10.0}, "ours y": {"a": 30.0, "b": 5.0}, "ct2 x": {"a": 15.0}})
    line = next(line for line in report.table().splitlines() if line.startswith("ours against ct2"))
    assert line.split()[3:] == ["2.00x", "-"]
