"""Receive buffers: those of long frames are kept for the next, a few of them, and count while a frame needs them."""

from __future__ import annotations

from ottla.broker.buffers import POOLED_BYTES, SPARE_BYTES_MAX, SPARE_MAX, ReceiveBuffers


def _long_frame(buffers: ReceiveBuffers, size: int) -> bytearray:
    """The buffer in which a frame of `size` bytes has arrived."""
    buffer = buffers.lend()
    while len(buffer) < size:
        larger = buffers.grow(buffer, size)
        assert larger is not None
        buffer = larger
    return buffer


def test_a_long_frame_is_read_into_the_memory_of_the_last_one() -> None:
    buffers = ReceiveBuffers()
    first = _long_frame(buffers, 1_000_000)
    buffers.give_back(first)
    assert _long_frame(buffers, 900_000) is first, "at once, without the sizes in between"


def test_what_had_arrived_is_in_the_larger_buffer() -> None:
    buffers = ReceiveBuffers()
    for _ in range(3):
        buffer = buffers.lend()
        buffer[:] = bytes(range(256)) * (POOLED_BYTES // 256)
        larger = buffers.grow(buffer, 3 * POOLED_BYTES)
        assert larger is not None
        assert larger[:POOLED_BYTES] == buffer
        buffers.give_back(larger)


def test_few_are_kept_and_none_that_is_huge() -> None:
    buffers = ReceiveBuffers()
    for buffer in [_long_frame(buffers, 1_000_000) for _ in range(3 * SPARE_MAX)]:
        buffers.give_back(buffer)
    huge = _long_frame(buffers, 4 * SPARE_BYTES_MAX)
    buffers.give_back(huge)
    assert len(buffers._spare) == SPARE_MAX
    assert all(len(buffer) <= SPARE_BYTES_MAX for buffer in buffers._spare)
    assert buffers.private_bytes == 0


def test_a_spare_buffer_counts_only_while_a_frame_is_in_it() -> None:
    buffers = ReceiveBuffers(private_bytes_max=1_500_000)
    first = _long_frame(buffers, 1_000_000)
    assert buffers.private_bytes == 1_000_000
    assert buffers.grow(buffers.lend(), 1_000_000) is None, "two of them would be too much"
    buffers.give_back(first)
    assert _long_frame(buffers, 1_000_000) is first
