"""The records of committed offsets, by hand, beside the generated classes."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.coordinator.offsets.codec import (
    NEVER,
    CommittedOffset,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    is_known,
)
from ottla.errors import Malformed
from ottla.model import ZERO_UUID, Uuid
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_value import OffsetCommitValue

names = st.text(st.characters(codec="utf-8"), max_size=40)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
ints = st.integers(-(1 << 31), (1 << 31) - 1)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
offsets = st.builds(CommittedOffset, longs, ints, names | names.map(lambda name: name * 9), longs, longs, uuids)


@given(names, names, ints)
def test_keys_are_kafkas(group: str, topic: str, partition: int) -> None:
    key = encode_key(group, topic, partition)
    assert key == b"\0\1" + OffsetCommitKey(group=group, topic=topic, partition=partition).encode(0)
    assert decode_key(key) == (group, topic, partition)


@given(offsets)
@example(CommittedOffset(7, 3, "", 1, NEVER, ZERO_UUID))
@example(CommittedOffset(7, 3, "x" * 126, 1, NEVER, ZERO_UUID))
@example(CommittedOffset(7, 3, "x" * 127, 1, NEVER, Uuid(bytes(range(16)))))
def test_values_are_kafkas(committed: CommittedOffset) -> None:
    value = encode_value(committed)
    version = 4 if committed.expire_timestamp_ms == NEVER else 1
    message = OffsetCommitValue(*committed)
    assert value == version.to_bytes(2, "big") + message.encode(version)
    assert is_known(value)
    decoded = decode_value(value)
    if version == 4:
        assert decoded == committed
    else:
        assert decoded == committed._replace(leader_epoch=-1, topic_id=ZERO_UUID)


@pytest.mark.parametrize("version", range(5))
@given(longs, names, longs)
def test_every_version_is_read(version: int, offset: int, metadata: str, commit_timestamp_ms: int) -> None:
    message = OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=commit_timestamp_ms)
    value = version.to_bytes(2, "big") + message.encode(version)
    assert decode_value(value) == CommittedOffset(offset, -1, metadata, commit_timestamp_ms)


def test_a_version_from_the_future_is_not_known() -> None:
    assert not is_known(b"\0\5" + bytes(20))
    with pytest.raises(Malformed, match="version 5"):
        decode_value(b"\0\5" + bytes(20))


@settings(deadline=None)
@given(offsets, st.data())
def test_what_is_cut_short_is_malformed(committed: CommittedOffset, data: st.DataObject) -> None:
    value = encode_value(committed)
    shorter = value[: data.draw(st.integers(0, len(value) - 1))]
    with pytest.raises(Malformed):
        decode_value(shorter)
    with pytest.raises(Malformed):
        is_known(shorter)
    key = encode_key("group", committed.metadata, 1)
    with pytest.raises(Malformed):
        decode_key(key[: data.draw(st.integers(0, len(key) - 1))])
    with pytest.raises(Malformed):
        decode_key(key + b"\0")
