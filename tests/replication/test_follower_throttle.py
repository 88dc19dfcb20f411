"""`follower.replication.throttled.rate`: the arithmetic, and what it does to copying."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.replication.throttle import UNLIMITED, ReplicationThrottle, is_throttled
from tests.jumping_loop import JumpingLoop
from tests.replication.follower_stage import Stage

MB = 1_000_000


def test_without_a_rate_nothing_is_ever_exceeded() -> None:
    throttle = ReplicationThrottle()
    throttle.record(1 << 40, 0)
    assert not throttle.is_limited
    assert not throttle.is_exceeded(0)
    assert throttle.allowance(0) == UNLIMITED


def test_a_samples_worth_passes_at_once_and_then_the_rate() -> None:
    throttle = ReplicationThrottle(MB)
    assert throttle.allowance(0) == MB
    throttle.record(MB, 0)
    assert not throttle.is_exceeded(0), "at the rate is not above it"
    throttle.record(1, 0)
    assert throttle.is_exceeded(0)
    assert throttle.allowance(0) == 0
    assert throttle.is_exceeded(999)
    assert not throttle.is_exceeded(1001)
    throttle.record(2 * MB, 1001)
    assert throttle.wait_ms(1001) == 1000, "looked at again after a sample at the latest"
    assert throttle.is_exceeded(2000)
    assert not throttle.is_exceeded(3001)


def test_the_window_slides() -> None:
    throttle = ReplicationThrottle(MB, samples=11, window_ms=1000)
    for second in range(30):
        throttle.record(MB // 2, second * 1000)
    assert throttle.measured(30_000) == pytest.approx(MB / 2, rel=0.1)
    # A quiet minute is not saved up: after it no more passes than at the beginning.
    assert throttle.measured(100_000) == 0
    assert throttle.allowance(100_000) == MB


def test_a_rate_that_changes_counts_at_once() -> None:
    throttle = ReplicationThrottle(10 * MB)
    throttle.record(5 * MB, 0)
    assert not throttle.is_exceeded(500)
    throttle.rate = MB
    assert throttle.is_exceeded(500)
    throttle.rate = 0
    assert throttle.is_exceeded(500)
    assert throttle.wait_ms(500) == 1000


@pytest.mark.parametrize(
    ("rate", "size"), [(MB, 10_000), (MB, 250_000), (MB, 1 << 20), (20 * MB, 250_000), (20 * MB, 1 << 20)]
)
def test_whoever_asks_before_each_answer_keeps_the_rate_within_a_tenth(rate: int, size: int) -> None:
    """As a pipeline does, for half a minute: answers of `size` come as fast as they are asked for."""
    throttle = ReplicationThrottle(rate)
    now_ms = passed = 0
    while now_ms < 30_000:
        if throttle.is_exceeded(now_ms):
            now_ms += throttle.wait_ms(now_ms)
            continue
        answer = min(size, max(1 << 14, throttle.allowance(now_ms)))
        throttle.record(answer, now_ms)
        passed += answer
        now_ms += 1
    assert passed / 30 == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize(
    ("listed", "throttled"),
    [("", False), ("*", True), ("0:7", False), ("3:7", True), ("1:7,3:8", False), ("3:8,3:7", True)],
)
def test_which_replicas_are_throttled(listed: str, throttled: bool) -> None:
    assert is_throttled(listed.split(","), 3, 7) == throttled


def test_a_throttled_copy_keeps_to_its_rate_and_others_do_not_wait_for_it() -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(_copy_with_a_throttle())


async def _copy_with_a_throttle() -> None:
    it = Stage(replica_fetch_wait_max_ms="20")
    rate = 200_000
    it.configure(follower_replication_throttled_rate=str(rate))
    it.throttle_topic("0:7,1:8")
    slow, quick = it.host(0), it.host(1)
    for index in range(2):
        it.leader.lead(index)
        it.leader.produce(index, 600, size=10_000)
    loop = asyncio.get_running_loop()
    began = loop.time()
    it.fetchers.follow(slow, 1, 0)
    it.fetchers.follow(quick, 1, 0)
    await it.caught_up(quick, within_s=0.5)  # It is on the list of another broker only.
    while (elapsed := loop.time() - began) < 20:
        # A sample's worth at once, and no more than the rate after it.
        assert slow.log.size_bytes() <= 1.1 * rate * max(1.0, elapsed)
        await asyncio.sleep(0.02)
    assert slow.log.size_bytes() == pytest.approx(rate * 20, rel=0.1)
    # Off the list: at full speed.
    it.throttle_topic("")
    await it.caught_up(slow, within_s=0.5)
    await it.stop()


async def test_a_replica_in_sync_is_not_throttled_out_of_it() -> None:
    it = Stage(replica_fetch_wait_max_ms="20")
    it.configure(follower_replication_throttled_rate="1000")
    it.throttle_topic("*")
    partition = it.host(0)
    it.leader.lead(0)
    it.fetchers.follow(partition, 1, 0)
    await it.until(lambda: len(it.leader.requests) > 2)
    for _ in range(5):
        it.leader.produce(0, size=5000)
        await it.caught_up(partition, within_s=1)
    assert it.fetchers.throttle.is_exceeded(int(asyncio.get_running_loop().time() * 1000))
    await it.stop()
