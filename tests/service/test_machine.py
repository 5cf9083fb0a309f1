import pytest

from service.machine import cpu_quota, read_machine


def write(root, path, text):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("text", "quota"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None)])
def test_the_quota_of_a_container_is_read(tmp_path, text, quota):
    write(tmp_path, "sys/fs/cgroup/cpu.max", text)
    assert cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(("quota_text", "quota"), [("200000", 2.0), ("-1", None)])
def test_the_quota_of_an_older_kernel_is_read(tmp_path, quota_text, quota):
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota_text)
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert cpu_quota(tmp_path) == quota


def test_memory_is_the_container_s_if_that_is_less(tmp_path):
    write(tmp_path, "proc/meminfo", "MemTotal:  1000 kB\nMemAvailable:  500 kB\nHugePages_Total: 0\n")
    assert read_machine(tmp_path).memory_bytes == 1000 * 1024
    assert read_machine(tmp_path).available_memory_bytes == 500 * 1024
    write(tmp_path, "sys/fs/cgroup/memory.max", "max")
    assert read_machine(tmp_path).memory_bytes == 1000 * 1024
    write(tmp_path, "sys/fs/cgroup/memory.max", "4096")
    assert read_machine(tmp_path).memory_bytes == 4096


def test_without_these_files_the_rest_is_still_told(tmp_path):
    machine = read_machine(tmp_path)
    assert machine.memory_bytes is None
    assert machine.processor
    assert machine.cores == machine.usable_cores >= 1
