"""Eligible leader replicas (KIP-966): who may still lead when the ISR is below the minimum, and who may not."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.features import ELR_VERSION
from ottla.metadata.images import DEFAULT_BROKER, LOST_DIRECTORY, NO_LEADER, RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
from ottla.wire.messages.alter_configs_request import AlterConfigsResource as LegacyResource
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.controller.acting import Acting, uid
from tests.controller.test_directory_control import assign, topic_id
from tests.controller.test_elections import alter


@pytest.fixture
def acting() -> Acting:
    """Brokers 1, 2 and 3, and 'orders' on all of them, which wants two in sync."""
    acting = Acting(elr=True)
    acting.unfenced(1, 2, 3)
    acting.assigned("orders", 1, 2, 3, min_insync_replicas="2")
    return acting


def shape(acting: Acting, name: str = "orders") -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    partition = acting.partition(name)
    return partition.leader, partition.isr, partition.elr, partition.last_known_elr


def test_who_leaves_an_isr_below_the_minimum_stays_eligible(acting: Acting) -> None:
    acting.fence(3)
    assert shape(acting) == (1, (1, 2), (), ()), "two are enough: 3 may miss what they commit"
    acting.fence(2)
    assert shape(acting) == (1, (1,), (2,), ())
    acting.fence(1)
    assert shape(acting) == (NO_LEADER, (), (1, 2), (1,)), "a fenced broker is in no ISR at all (A14)"
    acting.heartbeat(3)
    assert acting.partition("orders").leader == NO_LEADER, "3 was not eligible"
    acting.heartbeat(2)
    assert shape(acting) == (2, (2,), (1,), ()), "2 has everything that was committed"
    acting.heartbeat(1)
    assert acting.propose("orders", [2, 1]).error_code == 0
    assert shape(acting) == (2, (2, 1), (), ())


def test_the_leader_shrinks_below_the_minimum_and_grows_again(acting: Acting) -> None:
    acting.propose("orders", [1])
    assert shape(acting) == (1, (1,), (2, 3), ())
    acting.propose("orders", [1, 3])
    assert shape(acting) == (1, (1, 3), (), ())


def test_the_minimum_is_never_more_than_the_replicas() -> None:
    acting = Acting(elr=True, min_insync_replicas="3")
    acting.unfenced(1, 2)
    acting.assigned("pair", 1, 2)
    assert shape(acting, "pair") == (1, (1, 2), (), ())
    acting.fence(2)
    assert shape(acting, "pair") == (1, (1,), (2,), ())


def test_a_clean_restart_keeps_its_eligibility_and_an_unclean_one_loses_it(acting: Acting) -> None:
    acting.propose("orders", [1])
    clean, unclean = acting.epoch(2), acting.epoch(3)
    acting.fence(2)
    acting.fence(3)
    acting.register(2, incarnation=2, previous_epoch=clean)
    assert shape(acting) == (1, (1,), (2, 3), ())
    acting.register(3, incarnation=2, previous_epoch=unclean - 1)
    assert shape(acting) == (1, (1,), (2,), ()), "the epoch of the clean shutdown was an older one"


def test_an_unclean_restart_of_the_last_in_sync_leaves_the_last_leader_to_begin_again(acting: Acting) -> None:
    """The bug class of the last replica standing: what only its page cache held is gone, and others are eligible."""
    acting.propose("orders", [1])
    acting.fence(2)
    acting.fence(3)
    acting.now_ms += 9_001
    acting.register(1, incarnation=2)
    assert shape(acting) == (NO_LEADER, (), (2, 3), (1,))
    acting.heartbeat(1)
    assert acting.partition("orders").leader == NO_LEADER, "others have all that was committed: wait for them"
    acting.heartbeat(3)
    assert shape(acting) == (3, (3,), (2,), ())
    assert acting.partition("orders").leader_recovery_state == 0


def test_with_nobody_eligible_the_last_leader_leads_uncleanly(acting: Acting) -> None:
    acting.assigned("single", 1)
    acting.now_ms += 9_001
    acting.heartbeat(2)
    acting.heartbeat(3)
    acting.register(1, incarnation=2)
    assert shape(acting, "single") == (NO_LEADER, (), (), (1,))
    acting.heartbeat(1)
    assert shape(acting, "single") == (1, (1,), (), ())
    assert acting.partition("single").leader_recovery_state == 1, "it may have lost records, and says so"


def test_a_clean_restart_of_the_only_replica_loses_nothing(acting: Acting) -> None:
    acting.assigned("single", 1)
    epoch = acting.epoch(1)
    acting.heartbeat(1, shut_down=True)
    assert shape(acting, "single") == (NO_LEADER, (), (1,), (1,))
    for broker in (2, 3):
        acting.heartbeat(broker)
    assert acting.heartbeat(1, shut_down=True).should_shut_down
    acting.register(1, incarnation=2, previous_epoch=epoch)
    acting.heartbeat(1)
    assert shape(acting, "single") == (1, (1,), (), ())
    assert acting.partition("single").leader_recovery_state == 0


def test_an_unclean_election_forgets_who_was_eligible(acting: Acting) -> None:
    acting.propose("orders", [1])
    acting.fence(2)
    acting.fence(3)
    acting.fence(1)
    acting.register(3, incarnation=2)
    acting.heartbeat(3)
    assert shape(acting) == (NO_LEADER, (), (1, 2), (1,))
    assert acting.elect(1, {"orders": [0]}) == {("orders", 0): "NONE"}
    assert shape(acting) == (3, (3,), (), ())
    assert acting.partition("orders").leader_recovery_state == 1


def test_a_broker_that_is_unregistered_is_eligible_for_nothing(acting: Acting) -> None:
    acting.propose("orders", [1])
    acting.fence(2)
    acting.ask(lambda c, now: c.unregister_broker(UnregisterBrokerRequest(broker_id=2), now))
    assert shape(acting) == (1, (1,), (3,), ())


def test_a_failed_directory_makes_no_leader_eligible(acting: Acting) -> None:
    acting.register(4, log_dirs=[uid(74), uid(75)])
    acting.heartbeat(4)
    acting.reassign("orders", [4, 2, 3])
    acting.propose("orders", [1, 2, 3, 4])
    topic = acting.image.topic("orders")
    assert topic is not None
    assert assign(acting, (uid(74), topic.topic_id, 0), broker=4) == ["NONE"]
    acting.propose("orders", [4])
    assert shape(acting) == (4, (4,), (2, 3), ())
    acting.heartbeat(4, offline=[uid(74)])
    assert shape(acting) == (2, (2,), (3, 4), ()), "4 left the ISR, and 2 and 3 were eligible"
    acting.fence(2)
    acting.fence(3)
    assert acting.partition("orders").leader == NO_LEADER, "4 is alive, but its replica is not"


# A replica that lacks what was committed says so, and is lost until it has it again (E16).


def lose(acting: Acting, broker: int, name: str = "orders") -> None:
    assert assign(acting, (LOST_DIRECTORY, topic_id(acting, name), 0), broker=broker) == ["NONE"]


def find(acting: Acting, broker: int, name: str = "orders") -> None:
    assert assign(acting, (uid(50 + broker), topic_id(acting, name), 0), broker=broker) == ["NONE"]


def crash_all(acting: Acting) -> None:
    """Within moments, and all come back without proof of a clean shutdown: 1 led last. None is unfenced yet."""
    for broker in (3, 2, 1):
        acting.fence(broker)
    for broker in (1, 2, 3):
        acting.register(broker, incarnation=2)
    assert shape(acting) == (NO_LEADER, (), (), (1,))


def test_the_last_leader_is_not_elected_if_it_lacks_records(acting: Acting) -> None:
    crash_all(acting)
    lose(acting, 1)
    for broker in (1, 2, 3):
        acting.heartbeat(broker)
    assert shape(acting) == (NO_LEADER, (), (), (1,)), "others may have what it lacks"
    assert acting.elect(1, {"orders": [0]}) == {("orders", 0): "NONE"}
    assert shape(acting) == (2, (2,), (), ()), "it is the last that an operator gets"
    assert acting.propose("orders", [2, 1]).error_code == 0
    find(acting, 1)
    acting.fence(2)
    assert shape(acting) == (1, (1,), (2,), ()), "it has caught up, and may lead"


def test_if_all_lack_records_there_is_nobody_to_wait_for(acting: Acting) -> None:
    """As after a power loss of a whole site: the leader that went last begins again, as in Kafka."""
    crash_all(acting)
    for broker in (1, 2):
        lose(acting, broker)
        acting.heartbeat(broker)
    assert acting.partition("orders").leader == NO_LEADER, "3 has not been heard of"
    lose(acting, 3)
    assert shape(acting) == (1, (1,), (), ())
    assert acting.partition("orders").leader_recovery_state == 1
    acting.heartbeat(3)
    assert acting.propose("orders", [1, 3]).error_code == 0
    assert acting.partition("orders").leader == 1, "it leads, lost as it was, until it has said where it is"
    find(acting, 1)
    assert shape(acting) == (1, (1, 3), (), ())


def test_the_last_leader_may_be_the_last_that_comes_back(acting: Acting) -> None:
    crash_all(acting)
    for broker in (3, 2, 1):
        lose(acting, broker)
        acting.heartbeat(broker)
    assert shape(acting) == (1, (1,), (), ())


def test_where_records_may_be_lost_a_lost_replica_is_better_than_none(acting: Acting) -> None:
    assert alter(acting, RESOURCE_TOPIC, "orders", "unclean.leader.election.enable", "true") == 0
    crash_all(acting)
    lose(acting, 1)
    acting.heartbeat(1)
    assert shape(acting) == (1, (1,), (), ())


def test_a_leader_that_finds_damage_gives_up_its_lead_and_its_eligibility(acting: Acting) -> None:
    acting.propose("orders", [1, 2])
    lose(acting, 1)
    assert shape(acting) == (2, (2,), (), ()), "1 left the set, and is not eligible, though the set is too small"
    acting.fence(2)
    assert shape(acting) == (NO_LEADER, (), (2,), (2,))
    acting.heartbeat(1)
    assert acting.partition("orders").leader == NO_LEADER
    acting.heartbeat(2)
    assert shape(acting) == (2, (2,), (), ())


def test_who_was_in_sync_again_and_is_found_is_elected_at_once(acting: Acting) -> None:
    acting.propose("orders", [1])
    lose(acting, 3)
    assert shape(acting) == (1, (1,), (2,), ())
    acting.propose("orders", [1, 3])
    acting.fence(2)
    acting.fence(1)
    assert shape(acting) == (NO_LEADER, (3,), (1,), (1,)), "3 has everything, and its broker is yet to say so"
    find(acting, 3)
    assert shape(acting) == (3, (3,), (1,), ())
    assert acting.partition("orders").leader_recovery_state == 0


def test_without_eligible_leaders_the_last_in_sync_waits_or_is_all_there_is() -> None:
    acting = Acting()
    acting.unfenced(1, 2)
    acting.assigned("orders", 1, 2)
    acting.propose("orders", [1])
    acting.fence(1)
    acting.register(1, incarnation=2)
    lose(acting, 1)
    acting.heartbeat(1)
    assert shape(acting) == (NO_LEADER, (1,), (), ())
    lose(acting, 2)
    assert shape(acting)[:2] == (1, (1,))


def test_another_minimum_clears_what_the_old_one_made_eligible(acting: Acting) -> None:
    acting.assigned("other", 1, 2, min_insync_replicas="2")
    for name in ("orders", "other"):
        acting.propose(name, [1])
    assert alter(acting, RESOURCE_TOPIC, "orders", "min.insync.replicas", "1") == 0
    assert acting.last_records == ["ConfigRecord", "ClearElrRecord"]
    assert shape(acting) == (1, (1,), (), ())
    assert shape(acting, "other") == (1, (1,), (2,), ())
    assert alter(acting, RESOURCE_BROKER, "", "min.insync.replicas", "1") == 0
    assert shape(acting, "other") == (1, (1,), (), ())


def test_another_minimum_does_not_strand_who_has_no_isr(acting: Acting) -> None:
    acting.assigned("single", 1)
    for broker in (3, 2, 1):
        acting.fence(broker)
    before = shape(acting), shape(acting, "single")
    assert before == ((NO_LEADER, (), (1, 2), (1,)), (NO_LEADER, (), (1,), (1,)))
    alter(acting, RESOURCE_BROKER, "", "min.insync.replicas", "1")
    alter(acting, RESOURCE_TOPIC, "orders", "min.insync.replicas", "3")
    assert (shape(acting), shape(acting, "single")) == before, "nothing was committed meanwhile"
    acting.heartbeat(1)
    assert (shape(acting), shape(acting, "single")) == ((1, (1,), (2,), ()), (1, (1,), (), ()))


def test_a_leader_that_is_enough_by_itself_leaves_nobody_eligible_behind(acting: Acting) -> None:
    for broker in (3, 2, 1):
        acting.fence(broker)
    alter(acting, RESOURCE_TOPIC, "orders", "min.insync.replicas", "1")
    acting.heartbeat(1)
    assert shape(acting) == (1, (1,), (), ()), "it may commit alone from now on, and 2 would miss that"


def test_the_minimum_belongs_to_the_cluster_and_to_topics() -> None:
    acting = Acting(elr=True, min_insync_replicas="2")
    assert acting.image.config(DEFAULT_BROKER) == {"min.insync.replicas": "2"}, "set when the cluster began"
    acting.unfenced(1)
    assert alter(acting, RESOURCE_BROKER, "1", "min.insync.replicas", "1") == ErrorCode.INVALID_CONFIG
    assert alter(acting, RESOURCE_BROKER, "", "min.insync.replicas", None) == ErrorCode.INVALID_CONFIG
    legacy = AlterConfigsRequest(resources=[LegacyResource(resource_type=RESOURCE_BROKER, resource_name="")])
    answer = acting.ask(lambda c, now: c.alter_configs(legacy, now))
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG, "what is not named would be removed"
    assert alter(acting, RESOURCE_BROKER, "", "min.insync.replicas", "3") == 0


def test_switching_it_on_and_off() -> None:
    acting = Acting(min_insync_replicas="2")
    acting.unfenced(1, 2)
    assert alter(acting, RESOURCE_BROKER, "1", "min.insync.replicas", "1") == 0
    acting.assigned("orders", 1, 2)
    acting.propose("orders", [1])
    assert shape(acting) == (1, (1,), (), ())
    assert set_level(acting, 1, 1) == 0
    assert acting.image.features.elr
    assert acting.image.config(DEFAULT_BROKER) == {"min.insync.replicas": "2"}, "as this controller's file has it"
    assert acting.image.configs.get(DEFAULT_BROKER._replace(name="1")) is None
    acting.propose("orders", [1, 2])
    acting.propose("orders", [1])
    assert shape(acting) == (1, (1,), (2,), ())
    assert set_level(acting, 0, 2) == 0
    acting.fence(1)
    assert shape(acting) == (NO_LEADER, (1,), (), ()), "as before KIP-966, the last of the ISR stays in it"


def set_level(acting: Acting, level: int, kind: int) -> int:
    update = FeatureUpdateKey(feature=ELR_VERSION, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[update])
    return acting.ask(lambda c, now: c.update_features(request, now)).error_code
