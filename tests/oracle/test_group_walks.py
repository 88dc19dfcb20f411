"""The same random history of requests told to Apache Kafka and to us, with the same answers.

A history is thought out on the pure machine (`tests/coordinator/classic/bench.py`): it knows which requests are
answered by a step and which wait, so that nobody has to guess. Each server then gets the same requests in the same
order, and what it answers must be what the machine says, word for word but for the member ids, which each makes up for
itself.

Time does not pass in these histories. A history ends where nobody can know what Kafka does, which takes whichever
member comes first in a hash map for a leader that has gone; and where we differ on purpose: who is removed while its
SyncGroup waits is told so by us, and never hears from Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random

import pytest

from ottla.coordinator.classic.group import GroupState
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.message import Message
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.behaviour.client import Client, eventually
from tests.coordinator.classic.bench import Bench, settings
from tests.group_member import GroupMember, find_coordinator, subscription
from tests.oracle.apache_kafka import ApacheKafka, KafkaTools
from tests.oracle.ottla_node import OttlaNode

pytestmark = pytest.mark.oracle

MEMBERS_MAX = 4
TOPIC = "t"
LONG_MS = 600_000
STEPS = 60
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": str(MEMBERS_MAX),
    "offsets.topic.num.partitions": "1",
    # What was sent earlier is handled earlier, whatever connection it came by.
    "num.network.threads": "1",
    "num.io.threads": "1",
}
CLIENTS = {"a": None, "b": None, "c": None, "s": "i", "t": "i", "u": "k"}
"""Names and instance ids; two have the same."""
OFFERS = (("range",), ("range", "sticky"), ("sticky", "range"))
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)

Address = tuple[str, int]


class Server:
    """One of the two, with a connection for each client of a history."""

    def __init__(self, name: str, address: Address) -> None:
        self.name = name
        self.address = address
        self.barrier = GroupMember(address, "nobody")
        self.clients: dict[str, GroupMember] = {}
        self.ids: dict[str, str] = {}
        """What this server calls a member that the machine gave an id."""

    def begin(self, group: str, stack: ExitStack) -> None:
        self.ids = {"": "", "stranger": "stranger"}
        self.clients = {
            name: stack.enter_context(
                GroupMember(
                    self.address,
                    group,
                    instance_id=instance_id,
                    client_id=name,
                    session_ms=LONG_MS,
                    rebalance_ms=LONG_MS,
                )
            )
            for name, instance_id in CLIENTS.items()
        }

    def settle(self) -> None:
        """What was sent until now will be handled before what is sent from now on."""
        assert self.barrier.beat() is ErrorCode.UNKNOWN_MEMBER_ID

    def learn(self, model_id: str, own_id: str) -> None:
        known = self.ids.setdefault(model_id, own_id)
        assert known == own_id, f"{self.name} calls {model_id} {own_id}, and has called it {known}"


Send = Callable[[Server], None]
"""Does on a server what was done on the machine."""


class Believer:
    """What a client of the history was told last, in the machine's words."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []
        self.protocol_name: str | None = "range"
        self.offers = 0


class History:
    def __init__(self, seed: int, servers: list[Server], group: str) -> None:
        self.random = Random(seed)
        self.servers = servers
        self.group = group
        self.bench = Bench(settings(0, MEMBERS_MAX))
        self.believers = {name: Believer(name) for name in CLIENTS}
        self.waiting: dict[int, tuple[str, str]] = {}
        """Token → client and kind of request, of those without an answer."""
        self.told: list[str] = []
        self.seen = dict.fromkeys(("joined", "synced", "fenced", "replaced", "full"), 0)

    def run(self) -> None:
        with ExitStack() as stack:
            for server in self.servers:
                server.begin(self.group, stack)
            for _ in range(STEPS):
                if not self.step():
                    break

    def step(self) -> bool:
        busy = {name for name, _ in self.waiting.values()}
        free = [name for name in CLIENTS if name not in busy]
        if not free:
            return False
        believer = self.believers[self.random.choice(free)]
        waited = set(self.waiting)
        leader = self._leader()
        steps: tuple[Callable[[Believer], Send], ...] = (self._join, self._sync, self._beat, self._leave, self._commit)
        sender = self.random.choices(steps, (40, 40, 10, 5, 5))[0](believer)
        self.bench.pass_time(0)
        if self._is_ambiguous(leader) or self._is_forgotten_by_kafka(waited):
            return False
        for server in self.servers:
            sender(server)
            server.settle()
        self.hear()
        return True

    def _leader(self) -> tuple[str | None, str | None]:
        """Member id and instance id."""
        group = self.bench.group()
        if group is None or group.leader_id is None:
            return None, None
        return group.leader_id, group.members[group.leader_id].group_instance_id

    def _is_ambiguous(self, before: tuple[str | None, str | None]) -> bool:
        group = self.bench.group()
        member_id, instance_id = before
        if group is None or member_id is None or member_id in group.members:
            return False
        if group.is_empty():
            # Kafka ends this generation by a timer without delay, and whoever has an id may be quicker.
            return bool(group.pending_members)
        if len(group.members) < 2:
            return False
        # A static leader that is replaced stays the leader.
        return instance_id is None or self._leader()[1] != instance_id

    def _is_forgotten_by_kafka(self, waited: set[int]) -> bool:
        answers = (self.bench.answers.get(token) for token in waited)
        return any(
            isinstance(answer, SyncGroupResponse) and answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            for answer in answers
        )

    # Steps: each is done on the machine, and returns how to do it on a server.

    def _join(self, believer: Believer) -> Send:
        random = self.random
        if random.random() < 0.15:
            believer.offers += 1
        member_id = random.choices((believer.member_id, "", "stranger"), (20, 3, 1))[0]
        instance_id = random.choices((CLIENTS[believer.name], None), (20, 1))[0]
        protocols = [(name, subscription(TOPIC, str(believer.offers))) for name in random.choice(OFFERS)]
        version = random.choice((3, 5, 8, 9, 9, 9)) if instance_id is None else random.choice((5, 8, 9, 9))
        token = self.bench.join(
            believer.name,
            member_id,
            instance_id=instance_id,
            protocols=protocols,
            session_ms=LONG_MS,
            rebalance_ms=LONG_MS,
            version=version,
        )
        self._asks(
            token, believer, "join", f"v{version} as {member_id!r} instance={instance_id} {[n for n, _ in protocols]}"
        )

        def send(server: Server) -> None:
            client = server.clients[believer.name]
            client.version, client.instance_id = version, instance_id
            client.start_join(protocols, server.ids[member_id])

        return send

    def _sync(self, believer: Believer) -> Send:
        random = self.random
        generation = random.choices((believer.generation, believer.generation + 1), (20, 1))[0]
        plan = {member: f"{generation}-{member[0]}".encode() for member in believer.members if random.random() < 0.8}
        protocol_name = random.choices((believer.protocol_name, "other"), (20, 1))[0]
        instance_id = CLIENTS[believer.name]
        token = self.bench.sync(
            believer.member_id,
            generation,
            plan,
            instance_id=instance_id,
            protocol_type="consumer",
            protocol_name=protocol_name,
        )
        self._asks(token, believer, "sync", f"as {believer.member_id!r} generation={generation} {protocol_name} {plan}")

        def send(server: Server) -> None:
            client = server.clients[believer.name]
            client.version, client.instance_id = 9, instance_id
            client.member_id, client.generation = server.ids[believer.member_id], generation
            client.protocol_name = protocol_name
            client.start_sync({server.ids[member]: assignment for member, assignment in plan.items()})

        return send

    def _beat(self, believer: Believer) -> Send:
        generation = self.random.choices((believer.generation, believer.generation - 1), (10, 1))[0]
        instance_id = CLIENTS[believer.name]
        token = self.bench.beat(believer.member_id, generation, instance_id=instance_id)
        expected = self._answer_now(token, believer, "beat", f"as {believer.member_id!r} generation={generation}")
        assert isinstance(expected, HeartbeatResponse)

        def send(server: Server) -> None:
            client = server.clients[believer.name]
            client.version, client.instance_id = 9, instance_id
            client.member_id, client.generation = server.ids[believer.member_id], generation
            self._compare(server, expected.error_code, int(client.beat()))

        return send

    def _leave(self, believer: Believer) -> Send:
        random = self.random
        instance_id = CLIENTS[believer.name]
        by_instance = instance_id is not None and random.random() < 0.4
        who = [("" if by_instance else believer.member_id, instance_id)]
        if random.random() < 0.3:
            other = random.choice(list(self.believers.values()))
            who.append((other.member_id, random.choice((CLIENTS[other.name], None))))
        token = self.bench.leave(*who)
        expected = self._answer_now(token, believer, "leave", str(who))
        assert isinstance(expected, LeaveGroupResponse)

        def send(server: Server) -> None:
            client = server.clients[believer.name]
            client.version = 9
            response = client.leave_response(
                *(MemberIdentity(member_id=server.ids[member], group_instance_id=instance) for member, instance in who)
            )
            self._compare(server, expected.error_code, response.error_code)
            self._compare(
                server,
                [(server.ids[m.member_id], m.group_instance_id, m.error_code) for m in expected.members],
                [(m.member_id, m.group_instance_id, m.error_code) for m in response.members],
            )

        return send

    def _commit(self, believer: Believer) -> Send:
        """An offset commit, for who may commit is up to the group."""
        random = self.random
        generation = random.choices((believer.generation, believer.generation + 1, -1), (10, 1, 1))[0]
        member_id = "" if generation == -1 else believer.member_id
        instance_id = None if generation == -1 else CLIENTS[believer.name]
        group = self.bench.group()
        error = ErrorCode.NONE
        try:
            if group is not None:
                group.check_offset_commit(member_id, instance_id, generation, False, 9)
            elif generation >= 0:
                error = ErrorCode.ILLEGAL_GENERATION
        except KafkaError as refused:
            error = refused.code
        self.told.append(f"{believer.name} commit as {member_id!r} generation={generation}: {error.name}")

        def send(server: Server) -> None:
            request = OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=generation,
                member_id=server.ids[member_id],
                group_instance_id=instance_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=TOPIC, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
                    )
                ],
            )
            response = server.clients[believer.name].call(request, OffsetCommitResponse, 8)
            self._compare(server, int(error), response.topics[0].partitions[0].error_code)

        return send

    # Answers.

    def _asks(self, token: int, believer: Believer, kind: str, words: str) -> None:
        self.told.append(f"{believer.name} {kind} {words}")
        self.waiting[token] = (believer.name, kind)

    def _answer_now(self, token: int, believer: Believer, kind: str, words: str) -> Message:
        answer = self.bench.answers[token]
        self.told.append(f"{believer.name} {kind} {words}: {answer}")
        if isinstance(answer, HeartbeatResponse) and ErrorCode(answer.error_code) in LOST:
            self._forget(believer, ErrorCode(answer.error_code))
        return answer

    def _forget(self, believer: Believer, error: ErrorCode) -> None:
        believer.member_id, believer.generation, believer.members = "", -1, []
        self.seen["fenced"] += error is ErrorCode.FENCED_INSTANCE_ID

    def hear(self) -> None:
        heard = [(token, *self.waiting.pop(token)) for token in sorted(set(self.waiting) & set(self.bench.answers))]
        for token, name, _ in heard:
            self.told.append(f"    {name} hears {self.bench.answers[token]}")
        for server in self.servers:
            got = [
                server.clients[name].joined() if kind == "join" else server.clients[name].synced()
                for _, name, kind in heard
            ]
            # All ids are learned before anything is compared: the leader's may come in the last answer.
            for (token, _, _), answer in zip(heard, got, strict=True):
                expected = self.bench.answers[token]
                if isinstance(answer, JoinGroupResponse) and isinstance(expected, JoinGroupResponse):
                    self._compare(server, ErrorCode(expected.error_code), ErrorCode(answer.error_code))
                    server.learn(expected.member_id, answer.member_id)
            for (token, name, _), answer in zip(heard, got, strict=True):
                expected = self.bench.answers[token]
                if isinstance(answer, JoinGroupResponse):
                    assert isinstance(expected, JoinGroupResponse)
                    self._compare_join(server, server.clients[name].version, expected, answer)
                else:
                    assert isinstance(expected, SyncGroupResponse)
                    self._compare(server, expected, answer)
        for token, name, _ in heard:
            self._believe(self.believers[name], self.bench.answers[token])

    def _compare_join(self, server: Server, version: int, expected: JoinGroupResponse, got: JoinGroupResponse) -> None:
        ids = server.ids
        no_name = "" if version < 7 else None
        self._compare(
            server,
            (
                expected.generation_id,
                ids[expected.member_id],
                expected.protocol_name if expected.protocol_name is not None else no_name,
                expected.protocol_type if version >= 7 else None,
                ids[expected.leader],
                expected.skip_assignment,
            ),
            (
                got.generation_id,
                got.member_id,
                got.protocol_name,
                got.protocol_type,
                got.leader,
                got.skip_assignment,
            ),
        )
        self._compare(
            server,
            sorted(
                (ids[m.member_id], m.group_instance_id if version >= 5 else None, m.metadata) for m in expected.members
            ),
            sorted((m.member_id, m.group_instance_id, m.metadata) for m in got.members),
        )

    def _believe(self, believer: Believer, answer: Message) -> None:
        assert isinstance(answer, JoinGroupResponse | SyncGroupResponse)
        error = ErrorCode(answer.error_code)
        if error in LOST:
            self._forget(believer, error)
        if isinstance(answer, SyncGroupResponse):
            self.seen["synced"] += not error
            return
        self.seen["full"] += error is ErrorCode.GROUP_MAX_SIZE_REACHED
        if error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            believer.member_id = answer.member_id
        if not error:
            group = self.bench.group()
            self.seen["joined"] += 1
            self.seen["replaced"] += group is not None and group.state is GroupState.STABLE and answer.skip_assignment
            believer.generation, believer.protocol_name = answer.generation_id, answer.protocol_name
            believer.members = [] if answer.skip_assignment else [member.member_id for member in answer.members]

    def _compare(self, server: Server, expected: object, got: object) -> None:
        told = "\n".join(self.told)
        assert got == expected, f"{told}\n{server.name} says {got}, the machine {expected}"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    directory = tmp_path_factory.mktemp("walks")
    with KafkaTools() as tools:
        apache = ApacheKafka(directory / "apache", overrides=SETTINGS, heap=("-Xmx512M",)).start(tools)
    try:
        ottla = OttlaNode(directory / "ottla", overrides=SETTINGS).start()
        try:
            with ExitStack() as stack:
                yield [_ready("Apache Kafka", apache, stack), _ready("Ottla", ottla, stack)]
        finally:
            ottla.stop()
    finally:
        apache.stop()


def _ready(name: str, node: ApacheKafka | OttlaNode, stack: ExitStack) -> Server:
    server = Server(name, (node.host, node.port))
    stack.enter_context(server.barrier)
    with Client(server.address) as client:
        client.create_topic(TOPIC)
    eventually(lambda: find_coordinator(server.barrier, "nobody"), lambda error: error is ErrorCode.NONE)
    eventually(server.barrier.beat, lambda error: error is ErrorCode.UNKNOWN_MEMBER_ID)
    return server


def _histories(seeds: range, servers: list[Server]) -> dict[str, int]:
    seen: dict[str, int] = {}
    for seed in seeds:
        history = History(seed, servers, f"group-{seed}")
        try:
            history.run()
        except BaseException:
            print(f"history {seed}")
            raise
        for what, count in history.seen.items():
            seen[what] = seen.get(what, 0) + count
    return seen


def test_histories_are_answered_alike(servers: list[Server]) -> None:
    seen = _histories(range(40), servers)
    assert all(seen.values()), f"the histories never came to what they are for: {seen}"


@pytest.mark.long
def test_many_histories_are_answered_alike(servers: list[Server]) -> None:
    _histories(range(1_000, 2_000), servers)
