"""What a replay reads was written by anybody: a record that cannot be is refused, and is no failed assertion."""

from __future__ import annotations

import pytest

from ottla.coordinator.classic.records import group_from
from ottla.coordinator.stored import GROUP_KINDS, TRANSACTION_KINDS, StoredRecord
from ottla.coordinator.transaction.states import TransactionState
from ottla.errors import Malformed
from ottla.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from ottla.wire.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from ottla.wire.messages.transaction_log_key import TransactionLogKey
from ottla.wire.messages.transaction_log_value import TransactionLogValue
from tests.coordinator.consumer.stage import Stage as Groups
from tests.coordinator.transaction.stage import Stage as Transactions


def test_a_consumer_group_that_is_deleted_before_its_members() -> None:
    shard = Groups().shard
    shard.replay(
        StoredRecord(
            ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), ConsumerGroupMemberMetadataValue(), version=0
        ),
        -1,
        -1,
    )
    key, value = GROUP_KINDS.encode(StoredRecord(ConsumerGroupMetadataKey(group_id="g"), None))
    deleted = GROUP_KINDS.decode(key, value)
    assert deleted is not None
    with pytest.raises(Malformed, match="before its members"):
        shard.replay(deleted, -1, -1)


def member(member_id: str, instance_id: str | None = None) -> MemberMetadata:
    return MemberMetadata(member_id=member_id, group_instance_id=instance_id)


@pytest.mark.parametrize(
    ("members", "protocol"),
    [
        ([member("a", "i"), member("b", "i")], "range"),
        ([member("a"), member("a")], "range"),
        ([member("a")], None),
    ],
)
def test_a_classic_group_that_cannot_be(members: list[MemberMetadata], protocol: str | None) -> None:
    value = GroupMetadataValue(protocol_type="consumer", protocol=protocol, leader="a", members=members)
    with pytest.raises(Malformed, match="the record of group 'g'"):
        group_from("g", value)


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE, 99, -1])
def test_a_transaction_in_a_state_that_is_never_written(state: int) -> None:
    written = StoredRecord(TransactionLogKey(transactional_id="t"), TransactionLogValue(transaction_status=state))
    read = TRANSACTION_KINDS.decode(*TRANSACTION_KINDS.encode(written))
    assert read is not None
    with pytest.raises(Malformed, match="state"):
        Transactions().shard.replay(read, -1, -1)
