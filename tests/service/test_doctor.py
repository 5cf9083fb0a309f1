from pathlib import Path

import pytest

from model.hardware import ComputeDevices
from service.doctor import ModelFiles, examine
from service.machine import Machine
from service.settings import Settings, is_loopback

GIB = 1024**3
MACHINE = Machine("A processor", 4, None, 0.1, 16 * GIB, 8 * GIB, 65_536)
DEVICES = ComputeDevices("2.13.0+cpu", None, (), "AVX512", True, True, True, True, 4)
GREEDY = {"default_beam_size": 1}


def findings(level, settings=None, models=(), machine=None, devices=None):
    """Texts and remedies of one level, on a good machine that is changed a little."""
    names = dict(
        zip(Machine.__dataclass_fields__, (getattr(MACHINE, n) for n in Machine.__dataclass_fields__), strict=True)
    )
    device_names = {name: getattr(DEVICES, name) for name in ComputeDevices.__dataclass_fields__}
    found = examine(
        Settings(**(GREEDY | (settings or {}))),
        models,
        Machine(**(names | (machine or {}))),
        ComputeDevices(**(device_names | (devices or {}))),
    )
    return [f"{finding.text} {finding.remedy}" for finding in found if finding.level == level]


def test_a_good_machine_gets_facts_only():
    assert findings("hint") == findings("fault") == []
    assert any("A processor, AVX512, 4 cores" in fact for fact in findings("fact"))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"devices": {"has_int8_kernels": False}}, "no int8 kernels"),
        ({"devices": {"has_compiled_kernels": False}}, "gcc"),
        ({"devices": {"has_compiled_kernels": False, "has_vnni": False}}, "7-bit"),
        ({"devices": {"cuda_version": "13.0"}}, "finds no GPU"),
        ({"settings": {"torch_threads": 8}}, "GOSSAMER_TORCH_THREADS=4"),
        ({"settings": {"torch_threads": 4}, "machine": {"cpu_quota": 1.5}}, "GOSSAMER_TORCH_THREADS=1"),
        ({"settings": {"precision": "float32"}}, "int8"),
        ({"settings": {"default_beam_size": 4}}, "GOSSAMER_DEFAULT_BEAM_SIZE=1"),
        ({"machine": {"load": 6.0}}, "6.0 on 4 cores"),
        ({"machine": {"memory_bytes": GIB // 2}}, "GOSSAMER_KV_CACHE_BYTES"),
        ({"machine": {"available_memory_bytes": GIB // 2}}, "512 MiB are free now"),
        ({"models": [ModelFiles("big", Path("m"), 8 * GIB)]}, "more memory"),
        ({"machine": {"max_open_files": 256}}, "ulimit -n"),
        ({"settings": {"host": "0.0.0.0", "allow_open": True}}, "for everyone who can reach it"),
    ],
)
def test_what_could_be_better_is_said_with_what_to_do(changes, part):
    (hint,) = findings("hint", **changes)
    assert part in hint


def test_a_processor_without_vnni_runs_the_kernels_too():
    devices = {"has_vnni": False, "vector_width": "AVX2"}
    assert findings("hint", devices=devices) == []
    assert any("int8: exact here" in fact for fact in findings("fact", devices=devices))


def test_int8_asked_for_and_missing_is_a_fault():
    (fault,) = findings("fault", settings={"precision": "int8"}, devices={"has_int8_kernels": False})
    assert "no int8 kernels" in fault


def test_a_gpu_is_named():
    assert "GPU: H200 " in findings("fact", devices={"gpus": ("H200",), "cuda_version": "13.0"})


@pytest.mark.parametrize(
    ("host", "answer"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_addresses(host, answer):
    assert is_loopback(host) is answer
