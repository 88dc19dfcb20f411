"""The driver of coordinators, with a shard that is easy to see through: what is answered when, and what is undone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from ottla.broker.coordinators import loading, served
from ottla.broker.hosted import HostedPartition
from ottla.broker.promise import Promise
from ottla.coordinator.outcome import Answer, AnyEffect, CancelTimer, Outcome, SetTimer
from ottla.coordinator.stored import AnyRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.log import AppendInfo
from ottla.log.producers import KNOWN_OPEN
from ottla.records import BatchBuilder, BatchHeader, CompressionType, batches
from ottla.runtime import DiskError
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from tests.coordinator.toy import KINDS, Play, Ring, Told, Toy, play, record
from tests.log.faulty_disk import Operation
from tests.seams.surroundings import InlineOffload
from tests.seams.test_maintenance import until

R = TypeVar("R")
NAME = "a"


def code(promise: Promise[R]) -> ErrorCode | None:
    """What the promise failed with; None if it was kept. It must be settled."""
    try:
        promise.result()
    except KafkaError as error:
        return error.code
    return None


async def turn() -> None:
    """One turn of the loop: what was gathered is appended."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def headers(it: Play) -> list[BatchHeader]:
    log = it.partition.log
    found: list[BatchHeader] = []
    offset = log.log_start_offset
    while (span := log.read(offset, max_bytes=1 << 20, upper_bound=log.log_end_offset)) is not None:
        found += [header for header, _ in batches(memoryview(span.file.read(span.position, span.size)))]
        offset = found[-1].next_offset
    return found


def setting(name: str, number: int) -> Callable[[Toy, int], Outcome[int]]:
    return lambda toy, now_ms: toy.set(name, number)


def adding(number: int) -> Callable[[Toy, int], Outcome[int]]:
    return lambda toy, now_ms: toy.add(NAME, number)


async def loaded(it: Play) -> None:
    await until(lambda: "loaded" in it.toy.heard)


# Writing and answering.


async def test_a_write_is_answered_when_its_record_is_committed() -> None:
    async with play() as it:
        promise = it.runtime.write(NAME, setting(NAME, 7))
        assert not promise.done
        assert await promise == 7
        assert it.partition.log.high_watermark == 1
        assert it.toy.committed() == {NAME: 7}


async def test_the_writes_of_one_turn_lie_in_one_batch() -> None:
    async with play() as it:
        promises = [it.runtime.write(NAME, setting(f"n{number}", number)) for number in range(5)]
        assert [await promise for promise in promises] == [0, 1, 2, 3, 4]
        await it.runtime.write(NAME, setting("next turn", 5))
        assert [header.record_count for header in headers(it)] == [5, 1]


async def test_an_urgent_outcome_waits_for_no_end_of_the_turn() -> None:
    async with play() as it:
        first = it.runtime.write(NAME, setting("first", 1))
        urgent: Promise[int] = it.runtime.write(
            NAME, lambda toy, now_ms: Outcome(2, [record("urgent", 2)], urgent=True)
        )
        # With what was gathered before it, in one batch.
        assert (first.result(), urgent.result()) == (1, 2)
        later = it.runtime.write(NAME, setting("later", 3))
        assert not later.done
        await later
        assert [header.record_count for header in headers(it)] == [2, 1]


async def test_a_request_sees_what_the_one_before_it_wrote_though_neither_is_committed() -> None:
    async with play() as it:
        it.lead_two()
        first = it.runtime.write(NAME, adding(1))
        await turn()
        second = it.runtime.write(NAME, adding(1))
        await turn()
        assert (first.done, second.done) == (False, False)
        it.replicate()
        assert (first.result(), second.result()) == (1, 2)


async def test_answers_leave_as_far_as_the_high_watermark_has_come() -> None:
    async with play() as it:
        it.lead_two()
        promises: list[Promise[int]] = []
        for _ in range(3):
            promises.append(it.runtime.write(NAME, adding(1)))
            await turn()
        for replicated in range(3):
            it.replicate(replicated + 1)
            assert [promise.done for promise in promises] == [number <= replicated for number in range(3)]


async def test_a_committed_read_does_not_see_speculation() -> None:
    async with play() as it:
        it.lead_two()
        it.runtime.write(NAME, setting(NAME, 1))
        await turn()
        assert it.runtime.read(NAME, lambda toy, now_ms: (toy.state(), toy.committed())) == ({NAME: 1}, {})
        it.replicate()
        assert it.runtime.read(NAME, lambda toy, now_ms: toy.committed()) == {NAME: 1}


async def test_an_outcome_without_records_waits_for_what_it_may_tell_of() -> None:
    async with play() as it:
        it.lead_two()
        it.runtime.write(NAME, setting(NAME, 1))
        in_the_same_turn = it.runtime.write(NAME, lambda toy, now_ms: Outcome(toy.numbers[NAME]))
        await turn()
        in_the_next = it.runtime.write(NAME, lambda toy, now_ms: Outcome(toy.numbers[NAME]))
        await turn()
        assert not in_the_same_turn.done
        assert not in_the_next.done
        it.replicate()
        assert (in_the_same_turn.result(), in_the_next.result()) == (1, 1)


async def test_an_outcome_without_records_is_answered_at_once_when_all_is_committed() -> None:
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        promise: Promise[str] = it.runtime.write(NAME, lambda toy, now_ms: Outcome("nothing to write"))
        assert promise.result() == "nothing to write"


async def test_a_refusal_writes_nothing_and_waits_for_nothing() -> None:
    async with play() as it:
        it.lead_two()
        it.runtime.write(NAME, setting(NAME, 1))

        def refuse(toy: Toy, now_ms: int) -> Outcome[int]:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

        assert code(it.runtime.write(NAME, refuse)) == ErrorCode.ILLEGAL_GENERATION
        assert code(it.runtime.write_waiting(NAME, lambda toy, token, now_ms: refuse(toy, now_ms))) is not None
        await turn()
        assert it.partition.log.log_end_offset == 1


async def test_whoever_is_answered_may_at_once_ask_again() -> None:
    async with play() as it:
        it.lead_two()
        more: list[Promise[int]] = []
        first = it.runtime.write(NAME, adding(1))
        first.when_done(lambda promise: more.append(it.runtime.write(NAME, adding(1))))
        second = it.runtime.write(NAME, adding(1))
        await turn()
        it.replicate()
        assert second.result() == 2
        await turn()
        it.replicate()
        assert more[0].result() == 3


# What cannot be written.


async def test_an_append_that_is_refused_is_undone() -> None:
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        it.partition.min_isr = 2
        it.lead(isr=(1,), replicas=(1, 2))
        await loaded(it)
        promises = [it.runtime.write(NAME, adding(1)) for _ in range(3)]
        assert it.toy.state() == {NAME: 4}
        await turn()
        assert [code(promise) for promise in promises] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
        assert it.toy.state() == {NAME: 1}
        assert it.partition.log.log_end_offset == 1


async def test_what_was_appended_before_a_refused_batch_stays() -> None:
    async with play() as it:
        it.partition.min_isr = 2
        it.lead_two()
        first = it.runtime.write(NAME, adding(1))
        await turn()
        # The follower falls behind, and is taken out of the in-sync set.
        image = it.partition.image
        alone = type(image)((1, 2), (1,), 1, image.leader_epoch, image.partition_epoch + 1, ())
        it.it.node.services.replicas.on_partition_changed(it.partition, alone)
        second = it.runtime.write(NAME, adding(1))
        await turn()
        assert code(second) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not first.done
        assert it.toy.state() == {NAME: 1}
        both = type(image)((1, 2), (1, 2), 1, image.leader_epoch, image.partition_epoch + 2, ())
        it.it.node.services.replicas.on_partition_changed(it.partition, both)
        third = it.runtime.write(NAME, adding(10))
        await turn()
        it.replicate()
        assert (first.result(), third.result()) == (1, 11)


async def test_a_disk_that_fails_takes_the_coordinator_with_it() -> None:
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))

        def refuse(operation: Operation) -> None:
            if operation.kind == "write" and "t-0" in operation.path:
                raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken")

        it.it.disk.hook = refuse
        promise = it.runtime.write(NAME, setting(NAME, 2))
        await turn()
        assert code(promise) == ErrorCode.NOT_COORDINATOR
        assert it.unloaded == [0]
        assert code(it.runtime.write(NAME, setting(NAME, 3))) == ErrorCode.NOT_COORDINATOR
        it.it.disk.hook = None


async def test_an_outcome_larger_than_a_batch_is_refused_whole() -> None:
    async with play() as it:
        limit = it.partition.rules.max_message_bytes
        too_large = [record("x" * 1000, number) for number in range(limit // 1000)]
        promise: Promise[None] = it.runtime.write(NAME, lambda toy, now_ms: Outcome(None, list(too_large)))
        assert code(promise) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert it.toy.state() == {}
        assert await it.runtime.write(NAME, setting(NAME, 1)) == 1


async def test_an_outcome_that_need_not_be_atomic_spreads_over_batches() -> None:
    async with play() as it:
        limit = it.partition.rules.max_message_bytes
        many = [record(f"{number:x<1000}", number) for number in range(3 * limit // 1000)]
        promise: Promise[str] = it.runtime.write(NAME, lambda toy, now_ms: Outcome("done", list(many), atomic=False))
        assert await promise == "done"
        assert len(it.toy.committed()) == len(many)
        assert len(headers(it)) > 3
        assert all(header.size <= limit for header in headers(it))


async def test_a_batch_that_is_full_is_appended_before_the_turn_ends() -> None:
    async with play() as it:
        size = it.partition.rules.max_message_bytes // 3
        promises = [it.runtime.write(NAME, setting(f"{number}" * size, number)) for number in range(5)]
        assert [await promise for promise in promises] == [0, 1, 2, 3, 4]
        assert [header.record_count for header in headers(it)] == [2, 2, 1]


def large(count: int) -> list[AnyRecord]:
    """Records that fill a batch each, more or less."""
    return [record(f"{number}-".ljust(600_000, "x"), number) for number in range(count)]


def refuse_append(it: Play, monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    """Of the appends from now on, the partition refuses one."""
    replicas = it.it.node.services.replicas
    append, appended = replicas.append_by_coordinator, itertools.count()

    def refuse(*arguments: Any, **options: Any) -> AppendInfo:
        if next(appended) == refused:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return append(*arguments, **options)

    monkeypatch.setattr(replicas, "append_by_coordinator", refuse)


@pytest.mark.parametrize("refused", [0, 1, 2])
async def test_an_outcome_of_which_a_batch_is_refused_is_refused(refused: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with play() as it:
        refuse_append(it, monkeypatch, refused)
        promise: Promise[str] = it.runtime.write(
            NAME, lambda toy, now_ms: Outcome("done", large(3), [Ring("bell")], "tag", atomic=False)
        )
        assert len(it.toy.state()) == 3
        await turn()
        assert code(promise) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert it.rung == []
        assert it.toy.heard[-1] == ("tag", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert len(it.toy.state()) == len(it.toy.committed()) == it.partition.log.log_end_offset == refused


async def test_an_outcome_with_a_record_larger_than_a_batch_is_refused_whole_though_it_need_not_be_atomic() -> None:
    async with play() as it:
        too_large = record("x" * it.partition.rules.max_message_bytes, 1)
        records = [record("first", 1), too_large, record("last", 1)]
        promise: Promise[str] = it.runtime.write(
            NAME, lambda toy, now_ms: Outcome("done", records, [Ring("bell")], atomic=False)
        )
        assert code(promise) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (it.toy.state(), it.rung) == ({}, [])


async def test_what_was_decided_on_a_batch_that_is_undone_is_undone_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with play() as it:
        refuse_append(it, monkeypatch, 0)
        first = it.runtime.write(NAME, adding(1))
        others: list[Promise[int]] = [
            # Two do not fit into one batch.
            it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, [record(NAME, toy.numbers[NAME] + 1), *large(1)]))
            for _ in range(2)
        ]
        assert it.toy.state()[NAME] == 3
        await turn()
        assert [code(promise) for promise in (first, *others)] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
        assert it.toy.state() == {}
        assert it.partition.log.log_end_offset == 0
        assert await it.runtime.write(NAME, adding(1)) == 1


async def test_a_transactional_write_is_decided_when_what_was_gathered_is_written_or_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with play() as it:
        it.partition.log.producers.verify_transactions = False
        gathered = it.runtime.write(NAME, adding(1))
        refuse_append(it, monkeypatch, 0)
        seen: list[dict[str, int]] = []

        def decide(toy: Toy, now_ms: int) -> Outcome[int]:
            seen.append(toy.state())
            return toy.add(NAME, 10)

        written = it.runtime.write_transactional(NAME, 7, 0, decide)
        assert code(gathered) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert written.result() == 10
        assert seen == [{}]


async def test_who_asks_again_while_more_is_appended_comes_after_that() -> None:
    async with play() as it:
        more: list[Promise[int]] = []
        first: Promise[int] = it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, [record(NAME, 1), *large(1)]))
        first.when_done(lambda promise: more.append(it.runtime.write(NAME, adding(100))))
        second: Promise[int] = it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, [record(NAME, 2), *large(1)]))
        await turn()
        assert (first.result(), second.result(), more[0].result()) == (0, 0, 102)
        assert it.toy.committed()[NAME] == 102
        assert len(it.made) == 1


async def test_a_leadership_that_ends_within_an_append_breaks_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    async with play() as it:
        replicas = it.it.node.services.replicas
        append = replicas.append_by_coordinator

        def append_and_resign(*arguments: Any, **options: Any) -> AppendInfo:
            info = append(*arguments, **options)
            it.resign()
            return info

        monkeypatch.setattr(replicas, "append_by_coordinator", append_and_resign)
        promise = it.runtime.write(NAME, setting(NAME, 1))
        await turn()
        assert code(promise) == ErrorCode.NOT_COORDINATOR


async def test_somebody_who_fails_at_an_answer_keeps_nobody_else_from_theirs() -> None:
    async with play() as it:
        it.lead_two()
        bugs: list[BaseException] = []
        it.it.node.services.stop_node = bugs.append
        promises = [
            it.runtime.write(NAME, lambda toy, now_ms: toy.set(NAME, 1, effects=[Ring("bell")])) for _ in range(3)
        ]

        def stumble(value: int) -> int:
            raise AssertionError("it cannot be")

        made = promises[0].then(stumble, lambda error: 0)
        await turn()
        it.replicate()
        assert [promise.result() for promise in promises] == [1, 1, 1]
        assert len(it.rung) == 3
        assert code(made) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert [str(bug) for bug in bugs] == ["it cannot be"]


async def test_a_refusal_does_not_wait_for_the_batch_that_took_too_long() -> None:
    async with play(timeout_ms=20) as it:
        it.lead_two()

        def two(toy: Toy, token: int, now_ms: int) -> Outcome[Told]:
            toy.answers["tag"] = Outcome(effects=[Answer(token=token, response=Told(-1))])
            return Outcome(None, [record(NAME, 1)], [], "tag")

        it.runtime.timeout_ms = 20
        answered = it.runtime.write_waiting(NAME, two)
        await turn()
        it.runtime.timeout_ms = 3_600_000  # Nobody could wait a second time.
        assert (await answered).number == -1


async def test_a_commit_that_takes_too_long_is_told_so_and_may_yet_happen() -> None:
    async with play(timeout_ms=20) as it:
        it.lead_two()
        ring = it.runtime.write(NAME, lambda toy, now_ms: toy.set(NAME, 1, effects=[Ring("bell")], tag="t"))
        await turn()
        with pytest.raises(KafkaError) as refused:
            await ring
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert ("t", ErrorCode.COORDINATOR_NOT_AVAILABLE) in it.toy.heard
        late: Promise[str] = it.runtime.write(NAME, lambda toy, now_ms: Outcome("waits for the same record"))
        assert not late.done
        it.replicate()
        assert late.result() == "waits for the same record"
        assert it.toy.committed() == {NAME: 1}
        assert [effect for _, _, effect in it.rung] == [Ring("bell")]


def foreign(it: Play, *records: tuple[bytes, bytes | None]) -> memoryview:
    builder = BatchBuilder()
    for key, value in records:
        builder.append(it.it.clock.wall_ms(), key, value)
    return memoryview(builder.build())


async def test_a_record_that_somebody_else_wrote_is_taken_up() -> None:
    async with play() as it:
        promise = it.runtime.write(NAME, setting(NAME, 1))
        unknown = (b"\0\7of a later release", b"\0\0")
        batch = foreign(it, KINDS.encode(record(NAME, 2)), unknown, KINDS.encode(record("b", 3)))
        it.it.node.services.replicas.produce_internally(it.partition, batch, -1, 12)
        # What was gathered went before it.
        assert promise.result() == 1
        assert it.toy.committed() == {NAME: 2, "b": 3}
        assert await it.runtime.write(NAME, adding(1)) == 3
        assert it.partition.log.log_end_offset == 5
        assert len(it.made) == 1
        it.lead()
        await loaded(it)
        assert it.toy.committed() == {NAME: 3, "b": 3}


async def test_what_somebody_else_wrote_is_committed_with_the_high_watermark() -> None:
    async with play() as it:
        it.lead_two()
        batch = foreign(it, KINDS.encode(record(NAME, 1)))
        it.it.node.services.replicas.produce_internally(it.partition, batch, -1, 12)
        promise = it.runtime.write(NAME, adding(1))
        await turn()
        assert (it.toy.state(), it.toy.committed()) == ({NAME: 2}, {})
        it.replicate(1)
        assert it.toy.committed() == {NAME: 1}
        assert not promise.done
        it.replicate()
        assert promise.result() == 2


async def test_a_record_without_a_key_that_somebody_else_wrote_stops_the_shard() -> None:
    """As it would when the log is loaded."""
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        builder = BatchBuilder()
        builder.append(it.it.clock.wall_ms(), None, b"no key")
        it.it.node.services.replicas.produce_internally(it.partition, memoryview(builder.build()), -1, 12)
        assert code(it.runtime.write(NAME, setting(NAME, 2))) == ErrorCode.NOT_COORDINATOR


async def test_a_transaction_that_somebody_else_began_makes_the_shard_read_its_log_again() -> None:
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        it.partition.log.producers.verify_transactions = False
        builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        builder.append(it.it.clock.wall_ms(), *KINDS.encode(record(NAME, 2)))
        batch = memoryview(builder.build())
        it.it.node.services.replicas.produce_internally(it.partition, batch, -1, 12, guard=KNOWN_OPEN)
        assert len(it.made) == 2
        await loaded(it)
        assert it.toy.state() == {NAME: 1}


async def test_a_record_that_somebody_else_wrote_unheard_makes_the_shard_read_its_log_again() -> None:
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        promise = it.runtime.write(NAME, setting(NAME, 2))
        batch = foreign(it, KINDS.encode(record(NAME, 3)))
        it.it.node.services.replicas.produce(it.partition, batch, -1, 12)
        await turn()
        assert code(promise) == ErrorCode.NOT_COORDINATOR
        assert len(it.made) == 2
        await loaded(it)
        assert it.toy.committed() == {NAME: 3}


# Losing and winning the leadership.


async def test_all_who_wait_hear_of_a_lost_leadership() -> None:
    async with play() as it:
        it.lead_two()
        appended = it.runtime.write(NAME, setting(NAME, 1))
        await turn()
        waiting: Promise[Told] = it.runtime.write_waiting(NAME, lambda toy, token, now_ms: Outcome())
        gathered = it.runtime.write(NAME, setting(NAME, 2))
        it.resign()
        assert [code(appended), code(waiting), code(gathered)] == [ErrorCode.NOT_COORDINATOR] * 3
        assert it.unloaded == [0, 0]  # Once when the second replica came, and once now.
        assert code(it.runtime.write(NAME, setting(NAME, 3))) == ErrorCode.NOT_COORDINATOR
        with pytest.raises(KafkaError):
            it.runtime.read(NAME, lambda toy, now_ms: toy.state())
        await turn()
        assert it.partition.log.log_end_offset == 1


async def test_a_new_leadership_begins_with_what_the_log_holds() -> None:
    async with play() as it:
        for number in range(5):
            await it.runtime.write(NAME, setting(f"n{number}", number))
        before = it.toy
        it.resign()
        it.lead()
        await loaded(it)
        assert it.toy is not before
        assert it.toy.committed() == before.committed() == {f"n{number}": number for number in range(5)}
        assert it.toy.leader_epoch == it.partition.image.leader_epoch
        assert await it.runtime.write(NAME, setting("n5", 5)) == 5


async def test_a_leadership_lost_while_it_loads_ends_the_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "TURN_S_MAX", 0.0)
    async with play() as it:
        await it.runtime.write(
            NAME, lambda toy, now_ms: Outcome(0, [record(f"n{number}", number) for number in range(1000)])
        )
        it.lead()
        first = it.toy
        await turn()
        it.resign()
        it.lead()
        await loaded(it)
        assert "loaded" not in first.heard
        assert len(it.toy.committed()) == 1000


async def test_a_deleted_topic_ends_its_coordinator() -> None:
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        await it.it.client.ask(DeleteTopicsRequest(topic_names=["t"]), DeleteTopicsResponse, 5)
        await until(lambda: it.unloaded == [0])
        assert code(it.runtime.write(NAME, setting(NAME, 1))) == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("moves", [1, 2, 3])
async def test_a_move_after_every_step_gives_the_same_state(moves: int) -> None:
    """The same requests, with and without moves of the leadership between them."""

    async def steps(it: Play, move: Callable[[], None] | None) -> tuple[dict[str, int], int]:
        done = 0
        for number in range(12):
            await it.runtime.write(NAME, adding(number))
            await it.runtime.write(NAME, setting(f"n{number % 3}", number))
            if move is not None and number % moves == 0:
                move()
                await loaded(it)
                done += 1
        return it.toy.committed(), done

    async with play() as still:
        expected, _ = await steps(still, None)
    async with play() as moving:

        def move() -> None:
            moving.resign()
            moving.lead()

        found, done = await steps(moving, move)
        assert len(moving.made) == done + 1 > 1
    assert found == expected


# Loading.


async def test_requests_hear_that_it_loads_and_the_loop_is_free_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "TURN_S_MAX", 0.0)
    async with play() as it:
        for part in range(4):
            await it.runtime.write(
                NAME,
                lambda toy, now_ms, part=part: Outcome(0, [record(f"{part}-{n}", n) for n in range(500)]),  # type: ignore[misc]
            )
        it.lead()
        turns = 0
        while "loaded" not in it.toy.heard:
            assert code(it.runtime.write(NAME, setting(NAME, 1))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            with pytest.raises(KafkaError) as refused:
                it.runtime.read_all(lambda toy, now_ms: toy.state())
            assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10
        assert len(it.toy.committed()) == 2000


def with_steps(it: Play, steps: list[list[AnyEffect]]) -> Toy:
    """The next leadership, whose shard takes up in these steps what it will read."""
    it.lead()
    it.toy.steps = steps
    return it.toy


async def test_what_was_read_is_taken_up_in_steps_that_leave_the_loop_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "TURN_S_MAX", 0.0)
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        toy = with_steps(it, [[]] * 5)
        heard: list[int] = []
        while "loaded" not in toy.heard:
            assert code(it.runtime.write(NAME, setting(NAME, 2))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            heard.append(len(toy.heard))
            await asyncio.sleep(0)
        assert toy.heard == [0, 1, 2, 3, 4, "loaded"]
        assert max(after - before for before, after in itertools.pairwise(heard)) == 1
        assert it.runtime.read(NAME, lambda toy, now_ms: toy.committed()) == {NAME: 1}


async def test_a_timer_that_goes_off_while_what_was_read_is_taken_up_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "TURN_S_MAX", 0.0)
    monkeypatch.setattr(served, "TIMER_RETRY_MS", 1)
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        toy = with_steps(it, [[timer(0)], [], [], []])
        await until(lambda: ("toy", "timer") in toy.heard)
        assert toy.heard == [0, 1, 2, 3, "loaded", ("toy", "timer")]


async def test_a_leadership_lost_while_what_was_read_is_taken_up_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "TURN_S_MAX", 0.0)
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        toy = with_steps(it, [[timer(1)], *[[]] * 5])
        while 1 not in toy.heard:
            assert "loaded" not in toy.heard
            await asyncio.sleep(0)
        it.resign()
        it.lead()
        await loaded(it)
        assert toy.heard == [0, 1]
        assert await it.runtime.write(NAME, adding(1)) == 2


async def test_shards_take_up_what_was_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that are committed at once would each take its part of every turn of the loop."""
    monkeypatch.setattr(loading, "TURN_S_MAX", 0.0)
    async with play(partitions=3) as it:
        replicas = it.it.node.services.replicas
        names = [next(name for name in "abcdefghi" if it.runtime.partition_for(name) == index) for index in range(3)]
        for name in names:
            await it.runtime.write(name, setting(name, 1))
        steps: list[int] = []
        for index in range(3):
            partition = replicas.partition("t", index)
            assert partition is not None
            it.runtime.on_elected(partition)
            it.toy.steps = [[]] * 4
        toys = it.made[-3:]
        while not all("loaded" in toy.heard for toy in toys):
            steps.append(sum(len(toy.heard) for toy in toys))
            await asyncio.sleep(0)
        assert max(after - before for before, after in itertools.pairwise(steps)) <= 2


@pytest.mark.parametrize("codec", list(CompressionType))
async def test_batches_of_every_codec_are_written_and_loaded(codec: CompressionType) -> None:
    async with play() as it:
        it.runtime.compression = codec
        await it.runtime.write(
            NAME, lambda toy, now_ms: Outcome(0, [record(f"n{number}", number) for number in range(100)])
        )
        assert [header.compression for header in headers(it)] == [codec]
        it.lead()
        await loaded(it)
        assert len(it.toy.committed()) == 100


async def test_what_an_earlier_leader_left_uncommitted_is_committed_before_anything_is_served() -> None:
    """It may have been committed for that leader, who told so: an answer without it would be older than that one."""
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        it.lead_two()
        await loaded(it)
        it.runtime.write(NAME, setting(NAME, 2))
        await turn()
        # Another leadership of this node, with a follower that has not fetched yet.
        made = it.runtime._make

        def make(partition: int, leader_epoch: int) -> Toy:
            toy = made(partition, leader_epoch)
            toy.on_loaded_outcome = Outcome(effects=[Ring("loaded")])
            return toy

        it.runtime._make = make
        it.lead_two()
        await until(lambda: it.toy.state() == {NAME: 2})
        await turn()
        assert it.toy.committed() == {NAME: 1}
        assert code(it.runtime.write(NAME, setting(NAME, 3))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(KafkaError):
            it.runtime.read(NAME, lambda toy, now_ms: toy.committed())
        assert it.rung == []
        it.replicate()
        assert it.runtime.read(NAME, lambda toy, now_ms: toy.committed()) == {NAME: 2}
        assert "loaded" in it.toy.heard
        assert [effect for _, _, effect in it.rung] == [Ring("loaded")]


async def test_a_tombstone_takes_back_what_was_loaded() -> None:
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        await it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, [record(NAME, None)]))
        assert it.toy.committed() == {}
        it.lead()
        await loaded(it)
        assert it.toy.committed() == {}


async def test_a_log_that_cannot_be_read_as_what_it_is_is_not_served() -> None:
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        await it.it.produce(b"has no key")
        it.lead()
        await until(lambda: code(it.runtime.write(NAME, setting(NAME, 2))) == ErrorCode.NOT_COORDINATOR)
        assert it.runtime.read_all(lambda toy, now_ms: toy.state()) == []
        assert "loaded" not in it.toy.heard


def spoil(it: Play, batch: int, where: int, mask: int = 1) -> None:
    """A bit of one batch turns over on the disk, `where` is counted from the batch's beginning, or its end."""
    log = it.partition.log
    header = headers(it)[batch]
    span = log.read(header.base_offset, max_bytes=1, upper_bound=log.log_end_offset)
    assert span is not None
    at = span.position + (where if where >= 0 else header.size + where)
    span.file.write(at, bytes([span.file.read(at, 1)[0] ^ mask]))


BITS = {
    "in a key": (-8, 1),
    "in its offset, which goes back": (7, 1),
    "in its offset, which is beyond everything": (0, 0x40),
    "in its length": (9, 1),
    "in its length, which makes no sense": (8, 0x80),
    "in its magic": (16, 4),
    "in its checksum": (17, 1),
}


@pytest.mark.parametrize("bit", BITS)
async def test_a_coordinator_whose_log_is_damaged_gives_up_its_lead(bit: str) -> None:
    async with play() as it:
        for number in range(3):
            await it.runtime.write(NAME, setting(f"name {number}", number))
        replicas = it.it.node.services.replicas
        told: list[HostedPartition] = []
        replicas.lacking.on_lacking = told.append
        spoil(it, 1, *BITS[bit])
        it.lead_two()
        await until(lambda: it.partition.leader is None)
        assert (it.partition.damaged_at, told) == (1, [it.partition])
        assert it.unloaded[-1] == 0
        assert code(it.runtime.write(NAME, setting(NAME, 2))) is ErrorCode.NOT_COORDINATOR
        assert it.runtime.count_partitions()[served.ShardState.FAILED] == 0, "it is another's to serve"


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
async def test_a_damaged_coordinator_that_nobody_can_take_over_is_not_served(
    replicas: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async with play() as it:
        for number in range(3):
            await it.runtime.write(NAME, setting(f"name {number}", number))
        spoil(it, 1, *BITS["in a key"])
        it.lead(isr=(1,), replicas=replicas)
        await until(lambda: it.runtime.count_partitions()[served.ShardState.FAILED] == 1)
        assert it.partition.leader is not None
        assert code(it.runtime.write(NAME, setting(NAME, 2))) is ErrorCode.NOT_COORDINATOR
        assert caplog.text.count("the batch at offset 1 is not what was written") == 1
        assert it.partition.log.log_end_offset == 3, "nothing of it is thrown away"


@pytest.mark.parametrize("method", ["replay", "on_loaded"])
async def test_a_log_that_a_shard_stumbles_over_stops_its_own_partition_alone(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with play(partitions=2) as it:
        services = it.it.node.services
        names = [next(name for name in "abcdef" if it.runtime.partition_for(name) == index) for index in (0, 1)]
        for name in names:
            await it.runtime.write(name, setting(name, 1))
        stopped: list[BaseException] = []
        services.stop_node = stopped.append
        original = getattr(Toy, method)

        def stumble(toy: Toy, *arguments: object) -> object:
            assert toy.partition != 0, "what the log says cannot be"
            return original(toy, *arguments)

        with monkeypatch.context() as patched:
            patched.setattr(Toy, method, stumble)
            for index in (0, 1):
                partition = services.replicas.partition("t", index)
                assert partition is not None
                it.runtime.on_elected(partition)
            await loaded(it)
        await until(lambda: code(it.runtime.write(names[0], setting("x", 1))) is ErrorCode.NOT_COORDINATOR)
        assert await it.runtime.write(names[1], setting(names[1], 2)) == 2
        assert stopped == []


class Surprise(InlineOffload):
    """Something happens before each read begins."""

    def __init__(self, happen: Callable[[], None]) -> None:
        self._happen = happen

    def run(self, work: Callable[[], R]) -> Awaitable[R]:
        def late() -> R:
            self._happen()
            return work()

        return super().run(late)


async def test_a_file_that_is_closed_with_its_partition_is_no_broken_disk() -> None:
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        services = it.it.node.services
        lost: list[HostedPartition] = []
        services.replicas.on_offline = lambda partition, error: lost.append(partition)

        def delete() -> None:
            services.replicas.forget("t", 0)
            it.partition.log.abandon()

        services.offload = Surprise(delete)
        it.lead()
        await until(lambda: not it.runtime._loading)
        assert (it.partition.failed, lost) == (False, [])


async def test_a_segment_that_is_closed_before_it_is_read_is_looked_for_again() -> None:
    """Retention and compaction close what they take away."""
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))
        closed: list[str] = []

        def close_once() -> None:
            segment = next(iter(it.partition.log._segments))
            if not closed:
                closed.append(segment.file.path)
                segment.close()

        it.it.node.services.offload = Surprise(close_once)
        it.lead()
        await loaded(it)
        assert closed
        assert it.toy.committed() == {NAME: 1}


async def test_a_disk_that_cannot_be_read_takes_the_partition_offline() -> None:
    async with play() as it:
        await it.runtime.write(NAME, setting(NAME, 1))

        def refuse() -> None:
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken")

        it.it.node.services.offload = Surprise(refuse)
        it.lead()
        await until(lambda: it.partition.failed)
        assert it.unloaded[-1] == 0


# Transactions.


async def test_the_offsets_of_a_transaction_count_from_its_marker_on() -> None:
    async with play() as it:
        log = it.partition.log
        log.producers.verify_transactions = False
        for producer_id, commit in ((7, True), (8, False)):
            name = f"of {producer_id}"
            written = it.runtime.write_transactional(NAME, producer_id, 0, setting(name, 1))
            assert await written == 1
            assert name not in it.toy.state()
            await it.runtime.complete_transaction(0, producer_id, 0, 3, commit, 1)
            assert (name in it.toy.committed()) is commit
        await it.runtime.write_transactional(NAME, 9, 0, lambda toy, now_ms: toy.set("of 9", 1))
        state = it.toy.committed(), dict(it.toy.staged.items())
        assert state == ({"of 7": 1}, {9: (("of 9", 1),)})
        found = headers(it)
        assert [(header.is_transactional, header.is_control) for header in found] == [
            (True, False),
            (True, True),
            (True, False),
            (True, True),
            (True, False),
        ]
        assert [header.producer_id for header in found] == [7, 7, 8, 8, 9]
        it.lead()
        await loaded(it)
        assert (it.toy.committed(), dict(it.toy.staged.items())) == state


async def test_a_transactional_write_comes_after_what_was_gathered() -> None:
    async with play() as it:
        it.partition.log.producers.verify_transactions = False
        plain = it.runtime.write(NAME, setting(NAME, 1))
        transactional = it.runtime.write_transactional(NAME, 7, 0, lambda toy, now_ms: toy.set(NAME, 2))
        assert plain.result() == 1
        assert transactional.result() == 2
        ended = it.runtime.complete_transaction(0, 7, 0, 3, True, 1)
        assert ended.result() is None
        assert it.toy.committed() == {NAME: 2}


async def test_a_transaction_that_was_not_verified_is_refused_and_undone() -> None:
    async with play() as it:
        refused = it.runtime.write_transactional(NAME, 7, 0, lambda toy, now_ms: toy.set(NAME, 1))
        assert code(refused) == ErrorCode.INVALID_TXN_STATE
        assert len(it.toy.staged) == 0
        assert it.partition.log.log_end_offset == 0


async def test_a_marker_that_the_log_refuses_is_undone() -> None:
    async with play() as it:
        it.partition.log.producers.verify_transactions = False
        await it.runtime.write_transactional(NAME, 7, 5, lambda toy, now_ms: toy.set(NAME, 1))
        stale = it.runtime.complete_transaction(0, 7, 4, 3, True, 1)
        assert code(stale) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert len(it.toy.staged) == 1
        assert it.toy.state() == {}


# Those who wait for an answer.


async def test_an_answer_leaves_when_the_outcome_that_holds_it_is_committed() -> None:
    async with play() as it:
        it.lead_two()
        tokens: list[int] = []

        def wait(toy: Toy, token: int, now_ms: int) -> Outcome[Told]:
            tokens.append(token)
            return Outcome()

        promises = [it.runtime.write_waiting(NAME, wait) for _ in range(2)]
        await turn()
        answers = [Answer(token=token, response=Told(token)) for token in tokens]
        it.runtime.write(NAME, lambda toy, now_ms: toy.set(NAME, 1, effects=[*answers]))
        await turn()
        assert not any(promise.done for promise in promises)
        it.replicate()
        assert [promise.result().number for promise in promises] == tokens


async def test_a_request_may_be_answered_by_its_own_outcome() -> None:
    async with play() as it:

        def answer(toy: Toy, token: int, now_ms: int) -> Outcome[Told]:
            return Outcome(None, [record(NAME, 1)], [Answer(token=token, response=Told(1))])

        def respond(toy: Toy, token: int, now_ms: int) -> Outcome[Told]:
            return Outcome(Told(2), [record(NAME, 2)])

        assert (await it.runtime.write_waiting(NAME, answer)).number == 1
        assert (await it.runtime.write_waiting(NAME, respond)).number == 2


async def test_how_a_write_ended_is_told_to_the_shard() -> None:
    async with play() as it:
        await it.runtime.write(NAME, lambda toy, now_ms: toy.set(NAME, 1, tag="written"))
        assert ("written", ErrorCode.NONE) in it.toy.heard
        it.partition.min_isr = 2
        it.lead(isr=(1,), replicas=(1, 2))
        await loaded(it)
        it.runtime.write(NAME, lambda toy, now_ms: toy.set(NAME, 2, tag="refused"))
        await turn()
        assert ("refused", ErrorCode.COORDINATOR_NOT_AVAILABLE) in it.toy.heard


async def test_after_a_failed_write_the_shard_has_the_first_word_to_those_who_wait() -> None:
    async with play() as it:
        it.partition.min_isr = 2
        it.lead(isr=(1,), replicas=(1, 2))

        def two(toy: Toy, token: int, now_ms: int) -> Outcome[Told]:
            toy.answers["tag"] = Outcome(effects=[Answer(token=token, response=Told(-1))])
            return Outcome(None, [record(NAME, 1)], [], "tag")

        def silent(toy: Toy, token: int, now_ms: int) -> Outcome[Told]:
            return Outcome(None, [record(NAME, 1)])

        answered, unanswered = it.runtime.write_waiting(NAME, two), it.runtime.write_waiting(NAME, silent)
        await turn()
        assert answered.result().number == -1
        assert code(unanswered) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_an_effect_is_carried_out_once_its_outcome_is_committed() -> None:
    async with play() as it:
        it.lead_two()
        it.runtime.write(NAME, lambda toy, now_ms: toy.set(NAME, 1, effects=[Ring("bell")]))
        await turn()
        assert it.rung == []
        it.replicate()
        assert it.rung == [(0, it.partition.image.leader_epoch, Ring("bell"))]


# Timers and metadata.


def timer(delay_ms: int) -> SetTimer:
    return SetTimer(key=("toy", "timer"), delay_ms=delay_ms)


async def test_a_timer_is_called_once() -> None:
    async with play() as it:
        it.toy.answers["toy", "timer"] = Outcome(records=[record("by timer", 1)])
        it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, effects=[timer(1)]))
        await until(lambda: it.toy.committed() == {"by timer": 1})
        assert it.toy.heard.count(("toy", "timer")) == 1


async def test_a_timer_set_again_forgets_the_earlier_one_and_a_cancelled_one_is_not_called() -> None:
    async with play() as it:
        it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, effects=[timer(1), timer(10_000)]))
        it.runtime.write(
            NAME,
            lambda toy, now_ms: Outcome(
                0, effects=[SetTimer(key=("toy", "gone"), delay_ms=1), CancelTimer(key=("toy", "gone"))]
            ),
        )
        it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, effects=[SetTimer(key=("toy", "last"), delay_ms=5)]))
        await until(lambda: ("toy", "last") in it.toy.heard)
        assert [heard for heard in it.toy.heard if isinstance(heard, tuple)] == [("toy", "last")]


async def test_a_timer_that_is_set_again_and_again_does_not_pile_up() -> None:
    async with play() as it:
        wheel = it.it.node.services.timers
        it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, effects=[timer(45_000)]))
        before = sum(len(slot) for slot in wheel._slots.values())
        for _ in range(100):
            it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, effects=[timer(45_000)]))
        assert sum(len(slot) for slot in wheel._slots.values()) == before


async def test_timers_go_with_the_leadership() -> None:
    async with play() as it:
        first = it.toy
        it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, effects=[timer(1)]))
        it.lead()
        it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, effects=[timer(5)]))
        await until(lambda: ("toy", "timer") in it.toy.heard)
        assert ("toy", "timer") not in first.heard


async def test_a_timer_whose_records_were_refused_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "TIMER_RETRY_MS", 1)
    async with play() as it:
        it.partition.min_isr = 2
        it.lead(isr=(1,), replicas=(1, 2))
        it.toy.answers["toy", "timer"] = Outcome(records=[record("by timer", 1)])
        it.runtime.write(NAME, lambda toy, now_ms: Outcome(0, effects=[timer(1)]))
        await until(lambda: it.toy.heard.count(("toy", "timer")) >= 3)
        it.partition.min_isr = 1
        it.it.node.services.replicas.on_min_isr(it.partition)
        await until(lambda: it.toy.committed() == {"by timer": 1})


async def test_every_shard_hears_of_new_metadata() -> None:
    async with play(partitions=3) as it:
        await until(lambda: len(it.made) == 3)
        before = [len(toy.heard) for toy in it.made]
        topic = CreatableTopic(name="another", num_partitions=1, replication_factor=1)
        await it.it.client.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
        image = it.it.node.services.image
        assert image.topic("another") is not None
        assert all(
            len(toy.heard) > count and toy.heard[-1] is image for toy, count in zip(it.made, before, strict=True)
        )


async def test_names_spread_over_the_partitions_and_all_are_read_together() -> None:
    async with play(partitions=3) as it:
        names = [f"group-{number}" for number in range(20)]
        for number, name in enumerate(names):
            await it.runtime.write(name, setting(name, number))
        states = it.runtime.read_all(lambda toy, now_ms: toy.committed())
        assert len(states) == 3
        assert all(states)
        assert sorted(name for state in states for name in state) == sorted(names)
        for name in names:
            partition = it.runtime.partition_for(name)
            assert name in next(toy for toy in it.made if toy.partition == partition).committed()
