import pytest
import torch

from model.device import DeviceUnavailable, choose_device


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_without_a_gpu_the_processor_computes(without_gpu, name):
    assert choose_device(name) == torch.device("cpu")


@pytest.mark.parametrize(("built", "reason"), [(None, "has no CUDA in it"), ("13.0", "CUDA 13.0 and finds no GPU")])
def test_a_gpu_that_is_asked_for_and_missing_is_an_error_that_says_why(without_gpu, monkeypatch, built, reason):
    monkeypatch.setattr(torch.version, "cuda", built)
    with pytest.raises(DeviceUnavailable, match=reason):
        choose_device("cuda")


@pytest.mark.parametrize(("name", "device"), [("auto", "cuda"), ("cuda", "cuda"), ("cpu", "cpu")])
def test_with_a_gpu_it_computes_unless_the_processor_is_asked_for(monkeypatch, name, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert choose_device(name).type == device
