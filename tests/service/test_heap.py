import platform
import subprocess
import sys

import pytest

from model import allocator
from service import heap

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told anything")


# In a process of its own: what a large one has freed before serves new wishes too, whatever glibc was told.
_SCRIPT = """
import ctypes

from service import heap


class MallInfo(ctypes.Structure):  # `struct mallinfo2` of <malloc.h>; `hblks`: regions that are given back when freed
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
library.mallinfo2.restype = MallInfo


def regions_for(size):
    before = library.mallinfo2().hblks
    pointer = library.malloc(size)
    more = library.mallinfo2().hblks - before
    library.free(pointer)
    return more


with heap.reading_a_model():
    print(regions_for(1024**2))
print(regions_for(1024**2), regions_for(40 * 1024**2))
"""


def test_what_is_large_is_given_back_at_once_while_a_model_is_read_and_kept_for_the_next_step_afterwards():
    answer = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["1", "0", "1"]


def test_another_c_library_is_told_nothing(monkeypatch):
    monkeypatch.setattr(allocator, "_glibc", lambda: None)
    with heap.reading_a_model():
        pass
