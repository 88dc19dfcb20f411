"""What consumers say inside their own protocol is read up to a bound: nobody has counted it before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.coordinator.consumer.embedded import read_assignment, read_subscription
from ottla.coordinator.groups import EMBEDDED_ELEMENTS_MAX
from ottla.errors import Malformed
from ottla.wire.message import Message
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_assignment import TopicPartition as Given
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol_subscription import TopicPartition as Owned
from tests.coordinator.classic.bench import Bench, settings
from tests.group_member import subscription

V1 = b"\0\1"


@pytest.mark.parametrize(
    ("read", "message_with"),
    [
        (read_subscription, lambda count: ConsumerProtocolSubscription(topics=["t"] * count)),
        (
            read_subscription,
            lambda count: ConsumerProtocolSubscription(owned_partitions=[Owned(partitions=[0] * (count - 1))]),
        ),
        (
            read_assignment,
            lambda count: ConsumerProtocolAssignment(assigned_partitions=[Given(partitions=[0] * (count - 1))]),
        ),
    ],
    ids=["topics", "owned", "assigned"],
)
def test_so_many_elements_and_no_more(read: Callable[[bytes], Message], message_with: Callable[[int], Message]) -> None:
    assert read(V1 + message_with(EMBEDDED_ELEMENTS_MAX).encode(1))
    with pytest.raises(Malformed, match="more elements"):
        read(V1 + message_with(EMBEDDED_ELEMENTS_MAX + 1).encode(1))


@pytest.mark.parametrize(("count", "known"), [(EMBEDDED_ELEMENTS_MAX, True), (EMBEDDED_ELEMENTS_MAX + 1, False)])
def test_a_classic_group_whose_members_name_too_many_topics_counts_as_subscribed_to_all(
    count: int, known: bool
) -> None:
    """So that nobody deletes its offsets."""
    bench = Bench(settings(0))
    said = [("range", subscription(*["t"] * count))]
    bench.join("c", "", protocols=said, version=3)
    bench.pass_time(0)
    group = bench.group()
    assert group is not None
    assert group.generation == 1
    assert group.subscribed_topics == (frozenset({"t"}) if known else None)
    assert group.is_subscribed_to("another") is not known
