"""The same random histories of transactional producers, told to Apache Kafka and to us: the answers must be the same.

Producers come and go, repeat themselves, are late, and do what they should not. Each request is answered before the
next is sent, and a decision has reached its partitions before anybody goes on, so that no answer hangs on who was
quicker. Producer ids are compared by the order in which they were first heard of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random

import pytest

from ottla.errors import ErrorCode
from ottla.model import GROUP_TOPIC
from ottla.wire.messages.produce_response import ProduceResponse
from tests.behaviour.client import READ_COMMITTED, Client, Topic, batch, eventually, records_of
from tests.behaviour.transactions import V1, V2, Codes, Transactional

from .apache_kafka import ApacheKafka
from .conftest import Node

pytestmark = pytest.mark.oracle

WALKS = 24
STEPS = 60
PARTITIONS = 2


@dataclass(frozen=True)
class Step:
    """What one producer does. `lag` is by how many identities it is behind what it was told last."""

    producer: int
    what: str
    partitions: tuple[int, ...] = ()
    lag: int = 0
    expects: bool = False


@dataclass
class Told:
    """A producer on one side, and every identity that it was told."""

    transactional: Transactional
    version: int
    identities: list[tuple[int, int]] = field(default_factory=list)
    sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)


class Side:
    """One of the two servers."""

    def __init__(self, client: Client, topic: Topic, walk: int, plan: list[tuple[str, int]]) -> None:
        self.client = client
        self.topic = topic
        self.seen: dict[int, int] = {-1: -1}
        self.producers = [Told(Transactional(client, f"walk-{walk}-{name}"), version) for name, version in plan]
        for told in self.producers:
            told.transactional.find_coordinator()

    def tell(self, step: Step) -> list[object]:
        told = self.producers[step.producer]
        told.transactional.producer_id, told.transactional.epoch = self._identity(told, step.lag)
        answer: list[object] = getattr(self, f"_{step.what}")(told, step)
        return [step, answer, self._state(told)]

    def _identity(self, told: Told, lag: int) -> tuple[int, int]:
        if not told.identities:
            return 0, 0
        return told.identities[max(0, len(told.identities) - 1 - lag)]

    def _known(self, producer_id: int) -> int:
        return self.seen.setdefault(producer_id, len(self.seen) - 1)

    def _hear(self, told: Told, producer_id: int, epoch: int) -> tuple[int, int]:
        if producer_id >= 0 and (producer_id, epoch) not in told.identities:
            told.identities.append((producer_id, epoch))
        return self._known(producer_id), epoch

    def _state(self, told: Told) -> tuple[object, ...]:
        described = told.transactional.describe()
        if not described.error_code and described.transaction_state.startswith("Prepare"):
            told.transactional.settle()
            described = told.transactional.describe()
        where = sorted(
            # The two have another number of partitions for groups.
            (topic.topic, *(() if topic.topic == GROUP_TOPIC else sorted(topic.partitions)))
            for topic in described.topics
        )
        return (
            ErrorCode(described.error_code).name,
            described.transaction_state,
            self._known(described.producer_id) if not described.error_code else -1,
            described.producer_epoch,
            described.transaction_start_time_ms >= 0,
            where,
        )

    # Steps.

    def _init(self, told: Told, step: Step) -> list[object]:
        producer_id, epoch = self._identity(told, step.lag) if step.expects and told.identities else (-1, -1)
        answer = eventually(
            lambda: told.transactional.init(producer_id=producer_id, epoch=epoch),
            lambda answer: answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
        who = self._hear(told, answer.producer_id, answer.producer_epoch)
        return [ErrorCode(answer.error_code).name, who]

    def _add(self, told: Told, step: Step) -> list[object]:
        if told.version == V1:
            codes = told.transactional.add(self.topic, *step.partitions)
        else:
            codes = told.transactional.add_as_broker(self.topic, *step.partitions)
        return _told(codes)

    def _verify(self, told: Told, step: Step) -> list[object]:
        codes = told.transactional.add_as_broker(self.topic, *step.partitions, verify_only=True)
        return _told(codes)

    def _offsets(self, told: Told, step: Step) -> list[object]:
        return [told.transactional.add_offsets("group-of-walks").name]

    def _commit(self, told: Told, step: Step) -> list[object]:
        return self._end(told, commit=True)

    def _abort(self, told: Told, step: Step) -> list[object]:
        return self._end(told, commit=False)

    def _end(self, told: Told, *, commit: bool) -> list[object]:
        answer = told.transactional.end(commit=commit, version=told.version)
        who = self._hear(told, answer.producer_id, answer.producer_epoch)
        return [ErrorCode(answer.error_code).name, who]

    def _produce(self, told: Told, step: Step) -> list[object]:
        transactional = told.transactional
        answers: list[object] = []
        for partition in step.partitions:
            place = (transactional.producer_id, transactional.epoch if told.version == V2 else 0, partition)
            sequence = told.sequences.get(place, 0)
            records = batch(
                b"%d" % sequence,
                timestamp=1_700_000_000_000,
                producer_id=transactional.producer_id,
                producer_epoch=transactional.epoch,
                sequence=sequence,
                transactional=True,
            )
            request = self.client.produce_request(self.topic, records, partition=partition)
            request.transactional_id = transactional.transactional_id
            response = self.client.call(request, ProduceResponse, 11 if told.version == V1 else 12)
            (answer,) = response.responses[0].partition_responses
            if not answer.error_code:
                told.sequences[place] = sequence + 1
            answers.append((ErrorCode(answer.error_code).name, answer.base_offset))
        return answers

    def read(self) -> list[object]:
        """What a reader of committed records finds in the end, markers and all."""
        found: list[object] = []
        for partition in range(PARTITIONS):
            answer = self.client.fetch(self.topic, 0, partition=partition, isolation=READ_COMMITTED)
            aborted = sorted(
                (self._known(each.producer_id), each.first_offset) for each in answer.aborted_transactions or ()
            )
            records = [(record.offset, record.value) for record in records_of(answer)]
            found.append((answer.high_watermark, answer.last_stable_offset, aborted, records))
        return found


def _told(codes: Codes) -> list[object]:
    return [(partition, code.name) for (_, partition), code in sorted(codes.items())]


def steps_of(random: Random, producers: int) -> list[Step]:
    steps = []
    for _ in range(STEPS):
        what = random.choices(
            ("init", "add", "verify", "offsets", "commit", "abort", "produce"), (2, 4, 1, 1, 4, 3, 6)
        )[0]
        steps.append(
            Step(
                producer=random.randrange(producers),
                what=what,
                partitions=tuple(random.sample(range(PARTITIONS), random.randint(1, PARTITIONS))),
                lag=random.choice((0, 0, 0, 0, 1, 2)),
                expects=random.random() < 0.5,
            )
        )
    return steps


@pytest.fixture
def connect() -> Iterator[Callable[[Node], Client]]:
    with ExitStack() as connections:
        yield lambda node: connections.enter_context(Client((node.host, node.port)))


@pytest.mark.parametrize("walk", range(WALKS))
def test_the_same_history_has_the_same_answers(
    node: Node, apache: ApacheKafka, topic: str, walk: int, connect: Callable[[Node], Client]
) -> None:
    random = Random(walk)
    # The producers of an id follow the same rules: where they do not, Kafka confuses them.
    versions = {name: random.choice((V1, V2)) for name in "ab"}
    plan = [(name, versions[name]) for name in ("a", "a", "b")]
    steps = [Step(index, "init") for index in range(len(plan))] + steps_of(random, len(plan))
    told = []
    for server in (apache, node):
        client = connect(server)
        side = Side(client, client.create_topic(topic, PARTITIONS), walk, plan)
        story = [side.tell(step) for step in steps]
        told.append((story, side.read()))
    kafkas, ours = told
    for expected, came in zip(kafkas[0], ours[0], strict=True):
        assert came == expected
    assert ours[1] == kafkas[1]
