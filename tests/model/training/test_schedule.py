import pytest

from model.training.schedule import learning_rate_factor


def factor(step, power=0.25, cooldown=0.4, total=1_000):
    return learning_rate_factor(
        step, total_steps=total, warmup_steps=100, decay_power=power, cooldown_fraction=cooldown
    )


def test_it_rises_linearly_to_the_peak():
    assert factor(1) == pytest.approx(0.01)
    assert factor(50) == pytest.approx(0.5)
    assert factor(100) == 1.0


def test_it_falls_with_the_power_of_the_step():
    assert factor(400, power=0.5, cooldown=0) == pytest.approx(0.5)  # the paper's inverse square root
    assert factor(1_600, power=0.25, cooldown=0, total=5_000) == pytest.approx(0.5)
    assert factor(900, power=0.0, cooldown=0) == 1.0


def test_the_cool_down_ends_just_above_zero_and_stays_there():
    plain = (100 / 800) ** 0.25
    assert factor(800) == pytest.approx(plain * 201 / 400)
    assert 0 < factor(1_000) < 0.002
    assert factor(1_001) == 0.0
    assert factor(5_000) == 0.0
