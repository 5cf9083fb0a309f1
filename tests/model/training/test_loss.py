import math

import pytest
import torch

from model.training.loss import guided_alignment_loss, label_smoothed_loss


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


def test_guided_rows_cost_their_cross_entropy_and_rows_without_links_nothing():
    weights = torch.tensor([[[0.5, 0.25, 0.25, 0.0], [0.1, 0.9, 0.0, 0.0], [0.2, 0.2, 0.6, 0.0]]])
    alignment = torch.tensor([[[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]])
    log_weights = weights.log().requires_grad_()
    loss = guided_alignment_loss(log_weights, alignment)
    assert float(loss.detach()) == pytest.approx(-(0.5 * math.log(0.5) + 0.5 * math.log(0.25) + math.log(0.6)))
    loss.backward()
    # A padded source has weight 0: its logarithm may not make a gradient that is no number.
    assert torch.equal(log_weights.grad, -alignment)
