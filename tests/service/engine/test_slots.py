import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.slots import Reservation, Slots

RESERVATIONS = st.builds(Reservation, st.integers(1, 9), st.integers(0, 120))


@given(st.lists(st.tuples(st.integers(0, 5), RESERVATIONS), max_size=60))
def test_free_and_used_make_the_total_after_any_history(history):
    slots = Slots(8, 100)
    held = {}
    for sequence_id, wanted in history:
        if sequence_id in held:
            slots.release(sequence_id)
            del held[sequence_id]
        elif slots.fits(wanted):
            slots.reserve(sequence_id, wanted)
            held[sequence_id] = wanted
        else:
            assert wanted.rows > slots.free_rows or wanted.cache_bytes > slots.free_cache_bytes
            with pytest.raises(ValueError, match="are free"):
                slots.reserve(sequence_id, wanted)
        slots.check_integrity()
        assert slots.used_rows == sum(reservation.rows for reservation in held.values())
        assert slots.used_cache_bytes == sum(reservation.cache_bytes for reservation in held.values())
        assert len(slots) == len(held)
    for sequence_id in held:
        slots.release(sequence_id)
    assert (slots.free_rows, slots.free_cache_bytes) == (8, 100)


def test_everything_can_be_reserved_at_once():
    slots = Slots(8, 100)
    assert slots.fits(Reservation(8, 100))
    slots.reserve(1, Reservation(8, 100))
    assert not slots.fits(Reservation(1, 0))


def test_reserving_twice_or_nothing_is_refused():
    slots = Slots(8, 100)
    slots.reserve(1, Reservation(1, 1))
    with pytest.raises(ValueError, match="holds"):
        slots.reserve(1, Reservation(1, 1))
    with pytest.raises(ValueError, match="nothing to reserve"):
        slots.reserve(2, Reservation(0, 1))
    slots.check_integrity()


def test_releasing_twice_is_refused():
    slots = Slots(8, 100)
    slots.reserve(1, Reservation(1, 1))
    slots.release(1)
    with pytest.raises(KeyError):
        slots.release(1)
    slots.check_integrity()


def test_integrity_check_sees_a_lost_row():
    slots = Slots(8, 100)
    slots.free_rows -= 1
    with pytest.raises(AssertionError, match="rows"):
        slots.check_integrity()
