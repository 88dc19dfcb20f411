"""The same partitions, and the same wishes, given to Apache Kafka's controller logic and to ours.

Elections, eligible leader replicas, reassignments and leader epochs are decided by one function in both. Random cases
go to each, and the records must say the same, but for the few things that we do otherwise on purpose (`_as_meant`).
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from ottla.controller.partition_change import Election, Rules, Wanted, change_partition
from ottla.controller.reassignment import Reassignment
from ottla.metadata.delta import merge_partition_change
from ottla.metadata.images import LEADER_RECOVERING, NO_LEADER, PartitionImage
from ottla.model import Uuid
from ottla.wire.messages.partition_change_record import PartitionChangeRecord

from .apache_kafka import compiled, java

pytestmark = pytest.mark.oracle

CASES = 20_000
BROKERS = range(1, 8)


def directory(replica: int) -> Uuid:
    return Uuid((7 << 64 | replica).to_bytes(16, "big"))


class Case(NamedTuple):
    partition: PartitionImage
    min_insync_replicas: int
    elr: bool
    metadata_version: int
    active: frozenset[int]
    wanted: Wanted

    @property
    def line(self) -> str:
        partition, wanted = self.partition, self.wanted
        moving = wanted.reassignment
        columns = [
            _column(partition.replicas),
            _column(partition.isr),
            str(partition.leader),
            _column(partition.elr),
            _column(partition.last_known_elr),
            str(partition.leader_recovery_state),
            _column(partition.adding_replicas),
            _column(partition.removing_replicas),
            str(min(self.min_insync_replicas, len(partition.replicas))),
            str(int(self.elr)),
            wanted.election.name,
            _column(sorted(self.active)),
            _column(wanted.isr),
            _column(None if moving is None else moving.replicas),
            _column(None if moving is None else moving.adding),
            _column(None if moving is None else moving.removing),
            "=" if wanted.recovery_state is None else str(wanted.recovery_state),
            "=" if wanted.unclean_shutdown is None else str(wanted.unclean_shutdown),
            str(self.metadata_version),
        ]
        return " ".join(columns)

    @property
    def answer(self) -> PartitionChangeRecord | None:
        rules = Rules(
            may_lead=self.active.__contains__,
            min_insync_replicas=self.min_insync_replicas,
            elr=self.elr,
            metadata_version=self.metadata_version,
            new_directory=directory,
        )
        record = change_partition(Uuid(bytes(16)), 0, self.partition, rules, self.wanted)
        if record is None:
            return None
        assert isinstance(record.message, PartitionChangeRecord)
        return record.message


def _column(replicas: tuple[int, ...] | list[int] | None) -> str:
    return "=" if replicas is None else ",".join(map(str, replicas)) or "-"


def a_case(random: Random) -> Case:
    count = random.randint(1, 4)
    replicas = tuple(random.sample(BROKERS[:-1], count))
    elr = random.random() < 0.7
    minimum = random.randint(1, 3)
    isr = tuple(random.sample(replicas, random.randint(0 if elr else 1, count)))
    eligible: tuple[int, ...] = ()
    if elr and len(isr) < min(minimum, count):
        others = [replica for replica in replicas if replica not in isr]
        eligible = tuple(sorted(random.sample(others, random.randint(0, len(others)))))
    leader = random.choice(isr) if isr and random.random() < 0.8 else NO_LEADER
    last = (random.choice(replicas),) if elr and not isr and random.random() < 0.8 else ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    if random.random() < 0.3 and count > 1:
        removing = tuple(sorted(random.sample(replicas, random.randint(0, count - 1))))
        staying = [replica for replica in replicas if replica not in removing]
        adding = tuple(sorted(random.sample(staying, random.randint(0, len(staying)))))
    partition = PartitionImage(
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=5,
        partition_epoch=9,
        directories=tuple(map(directory, replicas)),
        leader_recovery_state=random.choice([0, 0, 0, LEADER_RECOVERING]),
        removing_replicas=removing,
        adding_replicas=adding,
        elr=eligible,
        last_known_elr=last,
    )
    active = {broker for broker in BROKERS if random.random() < 0.65}
    election = random.choice(list(Election))
    wanted = Wanted(election=election)
    match random.choice(["nothing", "isr", "gone", "restarted", "recovered", "reassigned"]):
        case "isr" if leader != NO_LEADER:
            others = [replica for replica in replicas if replica != leader]
            wanted = Wanted(election=election, isr=(leader, *random.sample(others, random.randint(0, len(others)))))
        case "gone":
            gone = random.choice(replicas)
            active.discard(gone)
            wanted = Wanted(election=election, isr=tuple(r for r in isr if r != gone))
        case "restarted":
            gone = random.choice(replicas)
            active.discard(gone)
            wanted = Wanted(election=election, isr=tuple(r for r in isr if r != gone), unclean_shutdown=gone)
        case "recovered" if leader in active:
            wanted = Wanted(election=election, recovery_state=0)
        case "reassigned" if not adding and not removing:
            target = tuple(random.sample(BROKERS, random.randint(1, 4)))
            wanted = Wanted(reassignment=Reassignment.towards(partition, target))
    version = random.choice([30, 26, 23] if elr else [30, 23, 17, 11])
    return Case(partition, minimum, elr, version, frozenset(active), wanted)


def parsed(line: str) -> PartitionChangeRecord | None:
    if line == "none":
        return None
    isr, leader, replicas, removing, adding, recovery, elr, last = line.split("|")

    def numbers(text: str) -> list[int] | None:
        return None if text == "null" else [int(part) for part in text.strip("[]").split(", ") if part]

    return PartitionChangeRecord(
        isr=numbers(isr),
        leader=int(leader),
        replicas=numbers(replicas),
        removing_replicas=numbers(removing),
        adding_replicas=numbers(adding),
        leader_recovery_state=int(recovery),
        eligible_leader_replicas=numbers(elr),
        last_known_elr=numbers(last),
    )


def after(case: Case, change: PartitionChangeRecord | None) -> PartitionImage:
    return case.partition if change is None else merge_partition_change(case.partition, change)


def _as_meant(case: Case, kafka: PartitionImage) -> PartitionImage | None:
    """What we make of what Kafka says, where we differ on purpose; None where we are not compared."""
    minimum = min(case.min_insync_replicas, len(kafka.replicas))
    moving = case.wanted.reassignment or Reassignment.of(case.partition)
    before = case.partition.isr if case.wanted.isr is None else case.wanted.isr
    ended = moving.in_progress and not Reassignment.of(kafka).in_progress
    if ended and len(tuple(r for r in before if r not in moving.removing)) < min(minimum, len(before)):
        return None  # We wait: the ISR would fall below what the topic asks for.
    if Reassignment.of(case.partition).in_progress and ended:
        # Every reassignment ends in a new leader epoch, also one that only added replicas.
        kafka = kafka._replace(leader_epoch=6)
    # Nobody is eligible who is no replica any more, nor where the ISR, be it one replica, is enough by itself.
    eligible = tuple(r for r in kafka.elr if r in kafka.replicas) if len(kafka.isr) < minimum else ()
    # And where there was no leader, none is remembered.
    last = () if kafka.last_known_elr == (NO_LEADER,) else kafka.last_known_elr
    return kafka._replace(elr=eligible, last_known_elr=last, partition_epoch=0, directories=())


def test_the_same_is_decided() -> None:
    random = Random(20_261_115)
    cases = [a_case(random) for _ in range(CASES)]
    source = Path(__file__).with_name("PartitionChanges.java")
    done = subprocess.run(
        [java(), "-cp", compiled(source), "PartitionChanges"],
        input="".join(case.line + "\n" for case in cases),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == CASES, done.stderr[-2000:]
    changed = skipped = 0
    for case, line in zip(cases, lines, strict=True):
        kafka = _as_meant(case, after(case, parsed(line)))
        if kafka is None:
            skipped += 1
            continue
        changed += line != "none"
        ours = after(case, case.answer)._replace(partition_epoch=0, directories=())
        assert ours == kafka, f"{case.line}: Kafka says {line}"
    assert changed > CASES // 3
    assert skipped < CASES // 100
