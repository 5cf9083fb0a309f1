import math

import pytest
import torch

from model.training.loss import guided_alignment_loss, label_smoothed_loss, projected_loss


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


@pytest.mark.parametrize("rows", [1, 64, 150])
@pytest.mark.parametrize("with_bias", [False, True])
def test_the_projected_loss_has_the_value_and_the_gradients_of_the_loss_of_all_logits(rows, with_bias):
    generator = torch.Generator().manual_seed(rows)
    hidden, weight, bias = (torch.randn(*shape, generator=generator) for shape in [(rows, 16), (90, 16), (90,)])
    targets = torch.randint(0, 90, (rows,), generator=generator)
    targets[::5] = 0  # pad
    leaves = [hidden, weight, *([bias] if with_bias else [])]
    found, expected = [], []
    for loss, results in ((projected_loss, found), (_loss_of_all_logits, expected)):
        copies = [leaf.clone().requires_grad_() for leaf in leaves]
        value = loss(copies[0], copies[1], copies[2] if with_bias else None, targets, 0, 0.1)
        (value * 0.25).backward()
        results += [value.detach(), *(copy.grad for copy in copies)]
    for ours, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-5, atol=1e-5)


def test_the_projected_loss_of_bfloat16_rows_is_near_and_its_weight_gets_a_gradient_of_its_own_format():
    generator = torch.Generator().manual_seed(3)
    hidden, weight = torch.randn(100, 16, generator=generator), torch.randn(90, 16, generator=generator) / 4
    targets = torch.randint(1, 90, (100,), generator=generator)
    exact = _loss_of_all_logits(hidden, weight, None, targets, 0, 0.1)
    leaf = weight.clone().requires_grad_()
    loss = projected_loss(hidden.bfloat16(), leaf, None, targets, 0, 0.1)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(exact), rel=0.01)
    assert leaf.grad.dtype == torch.float32


def _loss_of_all_logits(hidden, weight, bias, targets, pad_id, smoothing):
    return label_smoothed_loss(torch.nn.functional.linear(hidden, weight, bias), targets, pad_id, smoothing)
