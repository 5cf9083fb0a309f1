import math

import pytest
import torch

from model.training.loss import label_smoothed_loss


def test_it_is_the_cross_entropy_against_the_smoothed_distribution():
    torch.manual_seed(1)
    logits, targets, smoothing = torch.randn(6, 11), torch.tensor([1, 4, 0, 10, 0, 2]), 0.1
    expected = 0.0
    for row, target in zip(logits.double(), targets.tolist(), strict=True):
        if target != 0:
            wanted = torch.full((11,), smoothing / 11, dtype=torch.float64)
            wanted[target] += 1 - smoothing
            expected -= float((wanted * torch.log_softmax(row, 0)).sum())
    assert float(label_smoothed_loss(logits, targets, pad_id=0, smoothing=smoothing)) == pytest.approx(expected)


def test_equal_logits_cost_the_logarithm_of_the_vocabulary_a_token():
    loss = label_smoothed_loss(torch.zeros(3, 8_000), torch.tensor([5, 6, 7]), pad_id=0, smoothing=0.1)
    assert float(loss) / 3 == pytest.approx(math.log(8_000), rel=1e-5)
