import asyncio
import math
import time

from loadtests.arrivals import closed_loop, open_loop, percentile, poisson_times


def test_percentiles_are_values_that_were_seen():
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert math.isnan(percentile([], 0.5))


def test_arrivals_have_the_rate_and_the_same_seed_gives_the_same():
    times = poisson_times(rate=50.0, count=5_000, seed=3)
    assert times == poisson_times(rate=50.0, count=5_000, seed=3)
    assert times[0] == 0.0 and times == sorted(times)
    assert abs(times[-1] / 5_000 - 1 / 50) < 0.002


def test_an_open_loop_does_not_wait_and_counts_from_when_a_request_was_due():
    """A server that stands still for 0.2 s: everything that was due meanwhile shows it, though it answers at once."""

    async def run():
        free_at = time.perf_counter() + 0.2

        async def send(index):
            await asyncio.sleep(max(0.0, free_at - time.perf_counter()))
            return True, index

        return await open_loop([0.0, 0.05, 0.1], send)

    seen, span = asyncio.run(run())
    assert [one.result for one in seen] == [0, 1, 2]
    for one, stood in zip(seen, (0.2, 0.15, 0.1), strict=True):
        assert one.ok and stood - 0.02 < one.seconds
    assert span >= 0.18


def test_a_late_sender_counts_its_delay():
    async def run():
        async def send(index):
            if index == 0:
                time.sleep(0.15)  # holds up the loop, and with it the sending of the next one
            return True, None

        return await open_loop([0.0, 0.01], send)

    seen, _ = asyncio.run(run())
    assert seen[1].seconds > 0.12


def test_a_closed_loop_keeps_its_clients_busy_until_told():
    async def run():
        until, running, most = asyncio.Event(), 0, 0

        async def send(_number):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.005)
            running -= 1

        asyncio.get_running_loop().call_later(0.1, until.set)
        await closed_loop(3, until, send)
        return running, most

    assert asyncio.run(run()) == (0, 3)
