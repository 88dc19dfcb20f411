"""Very many transactions of one partition: to end one of them costs the same, however many there are.

Measured by growth, which is the same on every machine: eight times as many may cost eight times as much, and no more
than twice that. What grows with the square would cost sixty-four times as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from ottla.log import ProducerStates
from ottla.records import EndTxnMarker, read_header

from .story import batch

FEW, MANY = 3_000, 24_000
COMMIT = EndTxnMarker(commit=True, coordinator_epoch=0)
BATCH = read_header(batch(producer_id=0, producer_epoch=0, sequence=0, transactional=True))


def opened(count: int) -> ProducerStates:
    """Producer n has an open transaction that begins at offset n."""
    producers = ProducerStates()
    for number in range(count):
        producers.record(BATCH._replace(producer_id=number), number, number)
    return producers


def end(producers: ProducerStates, number: int, offset: int) -> None:
    producers.complete(BATCH._replace(producer_id=number), COMMIT, offset, 0)


def ended_and_replicated_at_once(producers: ProducerStates, count: int) -> None:
    for number in range(count):
        end(producers, number, count + number)
        assert producers.first_unstable_offset == number
        producers.on_high_watermark(count + number + 1)
    assert producers.first_unstable_offset is None


def ended_before_any_is_replicated(producers: ProducerStates, count: int) -> None:
    for number in range(count):
        end(producers, number, count + number)
        assert producers.first_unstable_offset == 0
    for number in range(count):
        producers.on_high_watermark(count + number)
        assert producers.first_unstable_offset == number


def ended_last_first(producers: ProducerStates, count: int) -> None:
    for number in reversed(range(count)):
        end(producers, number, 2 * count - number)
        assert producers.first_unstable_offset == 0
    for number in reversed(range(1, count)):
        producers.on_high_watermark(2 * count - number + 1)
        assert producers.first_unstable_offset == 0
    producers.on_high_watermark(2 * count + 1)
    assert producers.first_unstable_offset is None


@pytest.mark.parametrize(
    "story", [ended_and_replicated_at_once, ended_before_any_is_replicated, ended_last_first], ids=lambda s: s.__name__
)
def test_to_end_a_transaction_costs_the_same_among_many(story: Callable[[ProducerStates, int], None]) -> None:
    def cost_s(count: int) -> float:
        producers = opened(count)
        began_s = time.thread_time()
        story(producers, count)
        return time.thread_time() - began_s

    few_s = min(cost_s(FEW) for _ in range(3))
    many_s = min(cost_s(MANY) for _ in range(2))
    assert many_s < 2 * (MANY / FEW) * few_s


def test_what_was_decided_before_a_truncation_is_told_in_any_order() -> None:
    """It is restored when what follows is known already; the high watermark passes markers in the log's order."""
    producers = opened(4)
    end(producers, 3, 10)
    producers.restore_unreplicated({1: 9, 2: 8})
    assert producers.first_unstable_offset == 0
    end(producers, 0, 11)
    for high_watermark, first, left in ((9, 0, {0, 1, 3}), (10, 0, {0, 3}), (11, 0, {0}), (12, None, set())):
        producers.on_high_watermark(high_watermark)
        assert set(producers.unreplicated) == left
        assert producers.first_unstable_offset == (first if left else 1), "1 and 2 are open here"
