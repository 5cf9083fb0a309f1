import pytest
import torch

from model.dropout import dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_share_is_dropped_and_the_rest_raised_and_the_gradient_goes_the_same_way(dtype):
    torch.manual_seed(5)
    numbers = torch.ones(300, 40, dtype=dtype, requires_grad=True)
    kept = dropout(numbers, 0.2, training=True)
    kept.sum().backward()
    assert set(kept.detach().float().unique().tolist()) == {0.0, 1.25}
    assert float((kept == 0).float().mean()) == pytest.approx(0.2, abs=0.02)
    assert torch.equal(kept.detach(), numbers.grad)


def test_every_call_drops_others_and_a_seed_repeats_them():
    numbers = torch.ones(1000)
    torch.manual_seed(5)
    first, second = dropout(numbers, 0.5, training=True), dropout(numbers, 0.5, training=True)
    torch.manual_seed(5)
    assert torch.equal(dropout(numbers, 0.5, training=True), first)
    assert 0.4 < float((first == second).float().mean()) < 0.6


def test_tensors_larger_than_the_pool_of_random_numbers_are_dropped_from_too():
    kept = dropout(torch.ones(1 << 22), 0.25, training=True)
    assert float((kept == 0).float().mean()) == pytest.approx(0.25, abs=0.01)


def test_nothing_is_dropped_without_training():
    numbers = torch.randn(7)
    assert dropout(numbers, 0.5, training=False) is numbers
    assert dropout(numbers, 0.0, training=True) is numbers
