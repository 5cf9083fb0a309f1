import dataclasses

import pytest

from service.engine.limits import EngineLimits, InvalidLimits


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(EngineLimits)])
@pytest.mark.parametrize("value", [0, -1, True, "8", None, float("nan")])
def test_every_limit_is_a_number_above_zero(field, value):
    with pytest.raises(InvalidLimits, match=field) as caught:
        EngineLimits(**{field: value})
    assert caught.value.field == field


def test_a_source_must_fit_the_queue():
    with pytest.raises(InvalidLimits, match="max_source_tokens=512 .* 100"):
        EngineLimits(max_waiting_tokens=100)


def test_target_without_a_limit_grows_with_its_source_up_to_the_most():
    limits = EngineLimits(max_target_tokens=50, target_tokens_per_source_token=1.5, extra_target_tokens=10)
    assert [limits.default_target_tokens(length) for length in (1, 10, 11, 400)] == [12, 25, 27, 50]
