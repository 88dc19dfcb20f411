"""Brokers register, live, are fenced, and take their leave."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import NO_LEADER
from ottla.model import Uuid
from ottla.wire.messages.controller_registration_request import ControllerRegistrationRequest
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from tests.controller.acting import Acting, uid


def test_a_broker_starts_fenced_and_is_unfenced_once_it_has_read_its_own_registration() -> None:
    acting = Acting()
    epoch = acting.register(1)
    assert epoch == acting.image.last_offset, "the epoch is the offset of the record"
    behind = acting.heartbeat(1, offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    there = acting.heartbeat(1, offset=epoch)
    assert (there.is_caught_up, there.is_fenced, there.should_shut_down) == (True, False, False)
    registered = acting.image.broker(1)
    assert registered is not None
    assert registered.active
    before = len(acting.log)
    acting.heartbeat(1)
    assert len(acting.log) == before, "a broker that lives on is no news"


def test_a_retry_of_the_same_incarnation_keeps_its_epoch_and_its_state() -> None:
    acting = Acting()
    epoch = acting.register(1)
    acting.heartbeat(1)
    assert acting.register(1) == epoch
    registered = acting.image.broker(1)
    assert registered is not None
    assert not registered.fenced


def test_another_incarnation_must_wait_while_the_first_is_alive() -> None:
    acting = Acting()
    first = acting.register(1)
    acting.heartbeat(1)
    request = acting.registration(1, incarnation=2)
    code, message = acting.refused(lambda c, now: c.register_broker(request, now))
    assert (code, message) == ("DUPLICATE_BROKER_REGISTRATION", "Another broker with id 1 is alive in this cluster.")
    acting.now_ms += 9_001
    second = acting.register(1, incarnation=2)
    assert second > first
    with pytest.raises(KafkaError) as refusal:
        acting.heartbeat(1, epoch=first)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_that_comes_back_with_its_controller_need_not_wait_for_its_former_self() -> None:
    acting = Acting()
    acting.unfenced(1)
    acting.create("orders")
    acting.take_over()
    epoch = acting.register(1, incarnation=2)
    assert acting.last_records == ["PartitionChangeRecord", "RegisterBrokerRecord"]
    assert epoch == acting.image.last_offset
    assert acting.partition("orders").leader == NO_LEADER, "a fenced broker leads nothing (A14)"
    acting.heartbeat(1)
    assert acting.partition("orders").leader == 1
    assert acting.partition("orders").leader_epoch == 2


def test_after_a_failover_nobody_takes_the_id_of_a_broker_that_may_live() -> None:
    acting = Acting()
    acting.unfenced(1, 2)
    acting.take_over()
    request = acting.registration(2, incarnation=2)
    assert acting.refused(lambda c, now: c.register_broker(request, now))[0] == "DUPLICATE_BROKER_REGISTRATION"
    acting.now_ms += 9_001
    assert acting.register(2, incarnation=2)
    acting.take_over()
    assert acting.register(2, incarnation=3), "fenced, it need not be waited for"


def test_a_broker_that_took_its_leave_is_not_waited_for() -> None:
    acting = Acting()
    acting.unfenced(1, 2)
    assert acting.heartbeat(2, shut_down=True).should_shut_down
    epoch = acting.epoch(2)
    assert acting.register(2, incarnation=2, previous_epoch=epoch) > epoch


def test_one_that_began_to_shut_down_is_not_unfenced_again() -> None:
    acting = Acting()
    acting.unfenced(1, 2)
    acting.assigned("orders", 2, 1)
    acting.heartbeat(2, shut_down=True)
    acting.fence(2)
    assert acting.heartbeat(2).is_fenced, "it comes back as another incarnation, or not at all"
    assert acting.heartbeat(2, shut_down=True).should_shut_down


def test_wrong_registrations() -> None:
    acting = Acting()
    acting.unfenced(2)
    cases = [
        (acting.registration(1, cluster_id="other"), "INCONSISTENT_CLUSTER_ID"),
        (acting.registration(1, log_dirs=[]), "INVALID_REGISTRATION"),
        (acting.registration(1, log_dirs=[Uuid(bytes(16))]), "INVALID_REGISTRATION"),
        (acting.registration(1, log_dirs=[uid(5), uid(5)]), "INVALID_REGISTRATION"),
        (acting.registration(1, log_dirs=[uid(52)]), "INVALID_REGISTRATION"),
        (acting.registration(1, features={"metadata.version": (7, 29)}), "UNSUPPORTED_VERSION"),
        (acting.registration(1, features={}), "INVALID_REGISTRATION"),
        (
            acting.registration(1, features={"metadata.version": (7, 30), "group.version": (1, 1)}),
            "UNSUPPORTED_VERSION",
        ),
    ]
    for request, code in cases:
        assert acting.refused(lambda c, now, request=request: c.register_broker(request, now))[0] == code  # type: ignore[misc]
    migrating = acting.registration(1)
    migrating.is_migrating_zk_broker = True
    assert acting.refused(lambda c, now: c.register_broker(migrating, now))[0] == "BROKER_ID_NOT_REGISTERED"
    assert list(acting.image.cluster.brokers) == [2]


def test_silence_fences_a_broker_and_its_partitions_wait_for_it() -> None:
    acting = Acting()
    acting.unfenced(1, 2)
    acting.create("pair", assignment={0: [1, 2]}, partitions=-1, factor=-1)
    acting.create("single", assignment={0: [1]}, partitions=-1, factor=-1)
    acting.now_ms += 5_000
    acting.heartbeat(2)
    acting.now_ms += 5_000
    assert acting.controller.next_timed_work_ms() == 1_009_001
    acting.time_passes()
    assert [b.broker_id for b in acting.image.alive_brokers()] == [2]
    pair, single = acting.partition("pair"), acting.partition("single")
    assert (pair.leader, pair.isr, pair.leader_epoch) == (2, (2,), 1)
    assert (single.leader, single.isr, single.leader_epoch) == (NO_LEADER, (1,), 1), "the last of an ISR stays in it"
    before = len(acting.log)
    acting.time_passes()
    assert len(acting.log) == before
    back = acting.heartbeat(1)
    assert not back.is_fenced
    assert acting.partition("single").leader == 1
    assert acting.partition("pair").isr == (2,), "to come back into an ISR is for the leader to propose"


def test_a_new_controller_gives_everybody_a_full_session() -> None:
    acting = Acting()
    acting.unfenced(1)
    acting.now_ms += 60_000
    acting.take_over()
    acting.time_passes()
    assert len(acting.image.alive_brokers()) == 1
    acting.now_ms += 9_001
    acting.time_passes()
    assert acting.image.alive_brokers() == []


def test_a_pause_of_the_controller_is_not_held_against_the_brokers() -> None:
    acting = Acting()
    acting.unfenced(1)
    acting.now_ms += 60_000
    acting.controller.on_paused(acting.now_ms)
    acting.time_passes()
    assert len(acting.image.alive_brokers()) == 1


def test_controlled_shutdown_moves_leaders_then_waits_for_others_to_see_it() -> None:
    acting = Acting()
    acting.unfenced(1, 2)
    acting.create("pair", assignment={0: [1, 2]}, partitions=-1, factor=-1)
    asked = acting.heartbeat(1, shut_down=True)
    moved = acting.image.last_offset
    assert (asked.should_shut_down, asked.is_fenced) == (False, False)
    leaving = acting.image.broker(1)
    assert leaving is not None
    assert leaving.in_controlled_shutdown
    assert (acting.partition("pair").leader, acting.partition("pair").isr) == (2, (2,))
    assert not acting.heartbeat(1, shut_down=True).should_shut_down, "broker 2 has not seen it yet"
    acting.heartbeat(2, offset=moved - 1)
    assert not acting.heartbeat(1, shut_down=True).should_shut_down
    acting.heartbeat(2, offset=moved)
    assert acting.heartbeat(1, shut_down=True).should_shut_down
    assert [b.broker_id for b in acting.image.alive_brokers()] == [2]


def test_controlled_shutdown_does_not_wait_for_a_fenced_broker_to_see_it() -> None:
    """It serves nobody, and may take long to read what it has missed: clients are not sent anywhere by it."""
    acting = Acting()
    acting.unfenced(1, 2)
    acting.create("pair", assignment={0: [1, 2]}, partitions=-1, factor=-1)
    acting.register(3)
    assert acting.heartbeat(3, offset=0).is_fenced, "it has not read as far as its own registration"
    acting.heartbeat(1, shut_down=True)
    acting.heartbeat(2)
    assert acting.heartbeat(1, shut_down=True).should_shut_down


def test_two_brokers_that_shut_down_do_not_wait_for_each_other() -> None:
    acting = Acting()
    acting.unfenced(1, 2, 3)
    acting.create("trio", assignment={0: [1, 2, 3], 1: [2, 1, 3]}, partitions=-1, factor=-1)
    acting.heartbeat(1, shut_down=True, offset=0)
    acting.heartbeat(2, shut_down=True, offset=0)
    acting.heartbeat(3)
    assert acting.heartbeat(1, shut_down=True, offset=0).should_shut_down
    assert acting.heartbeat(2, shut_down=True, offset=0).should_shut_down


def test_a_sole_broker_shuts_down_in_two_steps_and_its_partitions_wait() -> None:
    acting = Acting()
    acting.unfenced(1)
    acting.create("orders", 2)
    assert not acting.heartbeat(1, shut_down=True).should_shut_down
    assert acting.last_records == ["BrokerRegistrationChangeRecord"] + 2 * ["PartitionChangeRecord"]
    assert acting.heartbeat(1, shut_down=True).should_shut_down
    assert [acting.partition("orders", n).leader for n in (0, 1)] == [NO_LEADER, NO_LEADER]
    assert acting.heartbeat(1, shut_down=True).should_shut_down, "a fenced broker may go at any time"
    acting.take_over()
    acting.register(1, incarnation=2)
    assert acting.last_records == ["RegisterBrokerRecord"], "nothing to clean up after a clean shutdown"
    acting.heartbeat(1)
    assert [acting.partition("orders", n).leader for n in (0, 1)] == [1, 1]
    assert [acting.partition("orders", n).leader_epoch for n in (0, 1)] == [2, 2]


def test_a_broker_without_leaderships_may_go_at_once() -> None:
    acting = Acting()
    acting.unfenced(1)
    assert acting.heartbeat(1, shut_down=True).should_shut_down


def test_controlled_shutdown_survives_a_change_of_controller() -> None:
    acting = Acting()
    acting.unfenced(1, 2)
    acting.create("pair", assignment={0: [1, 2]}, partitions=-1, factor=-1)
    acting.heartbeat(1, shut_down=True)
    acting.take_over()
    acting.heartbeat(2)
    assert acting.heartbeat(1, shut_down=True).should_shut_down


def test_a_broker_may_ask_to_be_fenced() -> None:
    acting = Acting()
    acting.unfenced(1)
    acting.create("orders")
    assert acting.heartbeat(1, fence=True).is_fenced
    assert acting.partition("orders").leader == NO_LEADER
    assert acting.heartbeat(1, fence=True).is_fenced
    assert not acting.heartbeat(1).is_fenced
    assert acting.heartbeat(1, fence=True, shut_down=True).should_shut_down


def test_a_directory_that_fails_takes_its_leaderships_with_it() -> None:
    acting = Acting()
    request = acting.registration(1, log_dirs=[uid(60), uid(61)])
    acting.ask(lambda c, now: c.register_broker(request, now))
    acting.heartbeat(1)
    acting.unfenced(2)
    acting.create("pair", assignment={0: [1, 2]}, partitions=-1, factor=-1)
    assert acting.partition("pair").directories[0] == Uuid(bytes(16)), "the broker has not yet said which"
    acting.heartbeat(1, offline=[uid(60)])
    broker = acting.image.broker(1)
    assert broker is not None
    assert broker.log_dirs == (uid(61),)
    acting.create("only", assignment={0: [2, 1]}, partitions=-1, factor=-1)
    acting.heartbeat(2, offline=[uid(52)])
    only = acting.partition("only")
    assert (only.leader, only.isr) == (1, (1,))


def test_unregistering_removes_a_broker_from_everything_it_leads() -> None:
    acting = Acting()
    acting.unfenced(1, 2)
    acting.create("pair", assignment={0: [1, 2]}, partitions=-1, factor=-1)
    acting.ask(lambda c, now: c.unregister_broker(UnregisterBrokerRequest(broker_id=1), now))
    assert list(acting.image.cluster.brokers) == [2]
    assert acting.partition("pair").leader == 2
    assert acting.refused(lambda c, now: c.unregister_broker(UnregisterBrokerRequest(broker_id=1), now)) == (
        "BROKER_ID_NOT_REGISTERED",
        "Broker 1 is not registered.",
    )
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        acting.heartbeat(1)


def test_controllers_register_from_the_level_on_that_has_the_record() -> None:
    request = ControllerRegistrationRequest(controller_id=3, incarnation_id=uid(3))
    acting = Acting()
    acting.ask(lambda c, now: c.register_controller(request, now))
    assert list(acting.image.cluster.controllers) == [3]
    older = Acting(metadata_version=14)
    assert older.refused(lambda c, now: c.register_controller(request, now))[0] == "UNSUPPORTED_VERSION"
