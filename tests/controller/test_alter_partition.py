"""A leader proposes another ISR, and the controller takes it or says why not, in an order that leaders rely on."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.images import NO_LEADER
from ottla.model import Uuid
from ottla.wire.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from tests.controller.acting import Acting, uid


@pytest.fixture
def acting() -> Acting:
    """Brokers 1, 2 and 3, and 'orders' on all of them, led by 1."""
    acting = Acting()
    acting.unfenced(1, 2, 3)
    acting.assigned("orders", 1, 2, 3)
    return acting


def test_the_isr_shrinks_and_grows_as_the_leader_says(acting: Acting) -> None:
    shrunk = acting.propose("orders", [1, 2])
    assert (shrunk.error_code, shrunk.isr, shrunk.leader_id) == (0, [1, 2], 1)
    assert (shrunk.leader_epoch, shrunk.partition_epoch) == (0, 1), "an ISR is no new leadership"
    assert acting.partition("orders").isr == (1, 2)
    grown = acting.propose("orders", [1, 2, 3])
    assert (grown.error_code, grown.isr, grown.partition_epoch) == (0, [1, 2, 3], 2)


def test_a_proposal_of_what_is_already_so_is_no_news(acting: Acting) -> None:
    before = len(acting.log)
    same = acting.propose("orders", [1, 2, 3])
    assert (same.error_code, same.isr, same.partition_epoch) == (0, [1, 2, 3], 0)
    assert len(acting.log) == before


def test_before_3_6_a_smaller_isr_is_a_new_leader_epoch() -> None:
    acting = Acting(metadata_version=11)
    acting.unfenced(1, 2)
    acting.assigned("orders", 1, 2)
    assert acting.propose("orders", [1]).leader_epoch == 1
    assert acting.propose("orders", [1, 2]).leader_epoch == 1


def refused(acting: Acting, isr: list[int], **wrong: int) -> str:
    before, partition = acting.controller.next_offset, acting.image.topic("orders")
    result = acting.propose("orders", isr, **wrong)  # type: ignore[arg-type]
    code = ErrorCode(result.error_code)
    if code is not ErrorCode.INELIGIBLE_REPLICA:
        assert acting.controller.next_offset == before, "what is refused for now leaves no record"
        assert acting.image.topic("orders") is partition
    return code.name


def test_the_checks_and_their_codes(acting: Acting) -> None:
    acting.propose("orders", [1, 2])
    acting.fence(3)
    assert acting.partition("orders").partition_epoch == 1
    acting.elect(0, None)
    cases = [
        (refused(acting, [1], index=7, sender=1), "UNKNOWN_TOPIC_OR_PARTITION"),
        (refused(acting, [1], leader_epoch=1), "NOT_CONTROLLER"),
        (refused(acting, [1], partition_epoch=2), "NOT_CONTROLLER"),
        (refused(acting, [1], sender=2), "INVALID_REQUEST"),
        (refused(acting, [1], partition_epoch=0), "INVALID_UPDATE_VERSION"),
        (refused(acting, [1, 4]), "INVALID_REQUEST"),
        (refused(acting, [1, 2, 2]), "INVALID_REQUEST"),
        (refused(acting, []), "INVALID_REQUEST"),
        (refused(acting, [2]), "INVALID_REQUEST"),
        (refused(acting, [1, 2], recovery=1), "INVALID_REQUEST"),
        (refused(acting, [1], recovery=1), "INVALID_REQUEST"),
        (refused(acting, [1], recovery=9), "INVALID_REQUEST"),
        (refused(acting, [1, 2, 3]), "INELIGIBLE_REPLICA"),
    ]
    assert [got for got, _ in cases] == [expected for _, expected in cases]


def test_an_older_leader_epoch_is_fenced_whoever_sends_it(acting: Acting) -> None:
    acting.fence(1)
    acting.heartbeat(1)
    assert acting.partition("orders").leader == 2
    assert refused(acting, [1], sender=1, leader_epoch=0) == "FENCED_LEADER_EPOCH"
    assert refused(acting, [1], sender=1, leader_epoch=0, partition_epoch=99) == "NOT_CONTROLLER"
    assert refused(acting, [1], sender=1, leader_epoch=1) == "INVALID_REQUEST", "it does not lead"
    assert refused(acting, [1, 2, 3], sender=1, partition_epoch=0) == "INVALID_REQUEST", "and that is said first"


def test_each_way_of_being_ineligible_refuses_the_whole_isr(acting: Acting) -> None:
    acting.propose("orders", [1])
    acting.assigned("twin", 2, 3)
    acting.heartbeat(2, shut_down=True)
    assert refused(acting, [1, 2]) == "INELIGIBLE_REPLICA", "shutting down (KIP-841)"
    acting.fence(3)
    assert refused(acting, [1, 3]) == "INELIGIBLE_REPLICA", "fenced"
    acting.heartbeat(3)
    assert refused(acting, [1, 2, 3]) == "INELIGIBLE_REPLICA", "one of them is enough"
    assert acting.propose("orders", [1, 3]).error_code == 0


def test_a_refusal_that_the_leader_takes_for_final_is_final(acting: Acting) -> None:
    """The leader had asked twice, and counts 3 no more once one copy is refused. The other comes when 3 is back."""
    acting.propose("orders", [1, 2])
    before = acting.partition("orders")
    acting.fence(3)
    assert refused(acting, [1, 2, 3]) == "INELIGIBLE_REPLICA"
    after = acting.partition("orders")
    assert after == before._replace(partition_epoch=before.partition_epoch + 1), "nothing changed but the epoch"
    acting.heartbeat(3)
    assert refused(acting, [1, 2, 3], partition_epoch=before.partition_epoch) == "INVALID_UPDATE_VERSION"
    assert acting.partition("orders") == after
    assert acting.propose("orders", [1, 2, 3]).error_code == 0


def test_a_growth_names_the_incarnation_that_caught_up(acting: Acting) -> None:
    """KIP-903: broker 3 caught up, then restarted and lost what it had; the leader knows only the old one."""
    acting.propose("orders", [1, 2])
    old = acting.epoch(3)
    acting.fence(3)
    acting.register(3, incarnation=2)
    acting.heartbeat(3)
    stale = acting.propose("orders", [1, 2, 3], epochs={3: old})
    assert ErrorCode(stale.error_code).name == "INELIGIBLE_REPLICA"
    assert acting.partition("orders").isr == (1, 2)
    assert acting.propose("orders", [1, 2, 3], epochs={3: -1}).error_code == 0, "-1 leaves the check out"


def test_version_2_has_no_broker_epochs(acting: Acting) -> None:
    assert acting.propose("orders", [1, 3], without_epochs=True).isr == [1, 3]


def ask(acting: Acting, *topics: TopicData, sender: int = 1, epoch: int | None = None) -> list[list[str]]:
    request = AlterPartitionRequest(
        broker_id=sender, broker_epoch=acting.epoch(sender) if epoch is None else epoch, topics=list(topics)
    )
    answer = acting.ask(lambda c, now: c.alter_partition(request, now))
    return [[ErrorCode(p.error_code).name for p in topic.partitions] for topic in answer.topics]


def proposal(acting: Acting, name: str, isr: list[int]) -> TopicData:
    topic = acting.image.topic(name)
    assert topic is not None
    partition = topic.partitions[0]
    return TopicData(
        topic_id=topic.topic_id,
        partitions=[
            PartitionData(
                partition_index=0,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                new_isr_with_epochs=[BrokerState(broker_id=m, broker_epoch=acting.epoch(m)) for m in isr],
            )
        ],
    )


def test_topics_succeed_and_fail_each_by_itself(acting: Acting) -> None:
    acting.assigned("other", 2, 3)
    unknown = TopicData(
        topic_id=uid(999), partitions=[PartitionData(partition_index=0), PartitionData(partition_index=5)]
    )
    nameless = TopicData(topic_id=Uuid(bytes(16)), partitions=[PartitionData(partition_index=0)])
    codes = ask(acting, unknown, nameless, proposal(acting, "other", [2]), proposal(acting, "orders", [1, 2]))
    assert codes == [["UNKNOWN_TOPIC_ID"] * 2, ["UNKNOWN_TOPIC_ID"], ["INVALID_REQUEST"], ["NONE"]]
    assert acting.partition("orders").isr == (1, 2)
    assert acting.partition("other").isr == (2, 3)


def test_a_partition_is_altered_once_a_request(acting: Acting) -> None:
    codes = ask(acting, proposal(acting, "orders", [1, 2]), proposal(acting, "orders", [1, 3]))
    assert codes == [["NONE"], ["INVALID_UPDATE_VERSION"]]
    assert acting.partition("orders").isr == (1, 2)


def test_a_stale_broker_is_refused_as_a_whole(acting: Acting) -> None:
    topic = proposal(acting, "orders", [1])
    code, _ = acting.refused(
        lambda c, now: c.alter_partition(AlterPartitionRequest(broker_id=1, broker_epoch=999, topics=[topic]), now)
    )
    assert code == "STALE_BROKER_EPOCH"
    code, _ = acting.refused(
        lambda c, now: c.alter_partition(AlterPartitionRequest(broker_id=9, broker_epoch=1, topics=[topic]), now)
    )
    assert code == "STALE_BROKER_EPOCH"


def test_an_uncleanly_elected_leader_says_when_it_has_recovered() -> None:
    acting = Acting()
    acting.unfenced(1, 2)
    acting.assigned("orders", 1, 2, unclean_leader_election_enable="true")
    acting.propose("orders", [1])
    acting.fence(1)
    partition = acting.partition("orders")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)
    acting.heartbeat(1)
    still = acting.propose("orders", [2, 1], recovery=1)
    assert ErrorCode(still.error_code).name == "INVALID_REQUEST", "not before it has recovered"
    assert acting.propose("orders", [2], recovery=1).error_code == 0
    done = acting.propose("orders", [2, 1], recovery=0)
    assert (done.error_code, done.leader_recovery_state) == (0, 0)
    assert acting.partition("orders").leader_recovery_state == 0


def test_a_leader_that_reassigns_itself_away_is_told_that_another_leads(acting: Acting) -> None:
    acting.unfenced(4)
    assert acting.reassign("orders", [4, 2, 3]) == ("NONE", None)
    answer = acting.propose("orders", [1, 2, 3, 4])
    assert ErrorCode(answer.error_code).name == "NEW_LEADER_ELECTED"
    partition = acting.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 2, 3), (2, 3, 4), 4)
    assert (partition.leader_epoch, partition.adding_replicas, partition.removing_replicas) == (1, (), ())


def test_nobody_leads_nobody_proposes(acting: Acting) -> None:
    acting.assigned("single", 1)
    acting.fence(1)
    assert acting.partition("single").leader == NO_LEADER
    acting.heartbeat(1)
    before = acting.partition("single")
    assert before.leader == 1
    late = acting.propose("single", [1], sender=1, leader_epoch=1)
    assert ErrorCode(late.error_code).name == "FENCED_LEADER_EPOCH"
