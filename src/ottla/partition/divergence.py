"""Where a reader's history parts from ours, by leader epochs (KIP-595): the answer to who says what it fetched last."""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError
from ottla.partition.follower import LogView


def diverging(log: LogView, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    """The largest epoch of ours not above the reader's last, and where it ends (exclusive), if the reader went on in
    another way from there; None if all that it holds is ours too. Raises OFFSET_OUT_OF_RANGE where that cannot be
    told."""
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return epoch, end_offset
    return None
