import pytest
import torch
from torch import nn

from model.training.averaging import WeightAverage


def test_the_average_forgets_exponentially():
    layer = nn.Linear(1, 1, bias=False)
    average = WeightAverage(layer, decay=0.9, every=1)
    expected = layer.weight.item()
    for step in range(1, 300):
        with torch.no_grad():
            layer.weight.fill_(step / 100)
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step / 100
    assert average.averages[0].item() == pytest.approx(expected, rel=1e-5)


def test_rarer_updates_forget_as_fast_a_step():
    layer = nn.Linear(1, 1, bias=False)
    averages = [WeightAverage(layer, decay=0.99, every=every) for every in (1, 5)]
    for step in range(1, 2_001):
        with torch.no_grad():
            layer.weight.fill_(float(step > 1_900))
        for average in averages:
            average.update(step)
    often, rarely = (average.averages[0].item() for average in averages)
    assert often == pytest.approx(1 - 0.99**100, abs=1e-4)
    assert rarely == pytest.approx(often, abs=1e-4)


def test_the_trained_weights_come_back_after_use_of_the_average():
    layer = nn.Linear(3, 3)
    average = WeightAverage(layer, decay=0.5, every=1)
    start = layer.weight.detach().clone()
    with torch.no_grad():
        layer.weight.add_(1.0)
    with average.applied():
        assert torch.equal(layer.weight, start)
    assert torch.equal(layer.weight, start + 1.0)
    assert torch.equal(average.averages[0], start)
