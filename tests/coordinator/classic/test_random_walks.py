"""Clients that ask whatever comes to their mind, on a partition that holds, fails and moves: C1–C8 after each step.

A client believes what it was last told. It may be static, have a double of the same instance id, ask twice, keep
silent, plan as leader with what it was told, or send what no sane client would.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from ottla.coordinator.classic.group import ClassicGroup, GroupState
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.coordinator.classic.bench import GROUP, Bench, settings, shard

PARTITIONS = 4
STEPS = 300
_LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
_FAILURES = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR)


class Client:
    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []
        """Of this generation, if it was told that it leads."""
        self.owned: bytes | None = None
        self.offers = 0


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bench = Bench(settings(self.random.choice((0, 3_000)), self.random.choice((3, 100, 100))))
        self.clients = [
            Client("a", None),
            Client("b", None),
            Client("c", None),
            Client("s", "i"),
            Client("t", "i"),
            Client("u", "k"),
        ]
        self.asked: dict[int, Client] = {}
        self.leaders: dict[tuple[int, int, int], str] = {}
        """Who leads: of each life of the group, in each incarnation of the coordinator, in each generation."""
        self.plans: dict[tuple[int, int, int], list[dict[str, bytes]]] = {}
        self.life = 0
        self.generation = 0
        self.seen_ids: set[str] = {"", "stranger"}
        self.taken = dict.fromkeys(("stable", "failed", "late", "moved", "replaced", "fenced"), 0)

    def run(self) -> None:
        for _ in range(STEPS):
            before = (self.bench.incarnation, self.life)
            timers = self.step()
            self.hear()
            self.check(before, timers)
        self.end()

    # What may happen.

    def step(self) -> int:
        bench, random = self.bench, self.random
        client = random.choice(self.clients)
        match random.choices(
            ("join", "sync", "beat", "leave", "time", "hold", "commit", "fail", "late", "move", "delete"),
            (40, 40, 10, 4, 14, 4, 10, 2, 1, 1, 1),
        )[0]:
            case "join":
                self._join(client)
            case "sync":
                self._sync(client)
            case "beat":
                token = bench.beat(client.member_id, client.generation, instance_id=client.instance_id)
                self.asked[token] = client
            case "leave":
                by_instance = client.instance_id is not None and random.random() < 0.5
                others = [(other.member_id, other.instance_id) for other in random.sample(self.clients, 1)]
                bench.leave(
                    ("" if by_instance else client.member_id, client.instance_id), *others[: random.randint(0, 1)]
                )
            case "time":
                return len(bench.pass_time(random.choice((10, 1_000, 3_000, 9_000))))
            case "hold":
                bench.held = True
            case "commit":
                bench.held = False
                bench.commit()
            case "fail":
                if bench.held:
                    self.taken["failed"] += 1
                    bench.held = False
                    bench.fail(random.choice(_FAILURES))
                    self.life += 1  # The group may be an earlier one, or none.
            case "late":
                if bench.held:
                    self.taken["late"] += 1
                    bench.time_out(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            case "move":
                self.taken["moved"] += 1
                bench.held = False
                bench.move()
            case "delete":
                group = bench.group()
                if group is not None and group.is_empty():
                    bench.delete()
                    self.life += 1
        return 0

    def _join(self, client: Client) -> None:
        random = self.random
        if random.random() < 0.1:
            client.offers += 1
        names = random.choice((("range",), ("range", "sticky"), ("sticky", "range")))
        token = self.bench.join(
            client.name,
            "" if random.random() < 0.1 else client.member_id,
            instance_id=client.instance_id,
            protocols=[(name, str(client.offers).encode()) for name in names],
            session_ms=random.choice((6_000, 10_000)),
            rebalance_ms=random.choice((8_000, 20_000)),
            version=random.choice((3, 8, 9, 9)),
        )
        client.owned = None
        self.asked[token] = client

    def _sync(self, client: Client) -> None:
        plan: dict[str, bytes] = {}
        if client.members:
            for partition in range(PARTITIONS):
                owner = self.random.choice(client.members)
                plan[owner] = plan.get(owner, b"") + bytes([partition])
            self.plans.setdefault((self.life, self.bench.incarnation, client.generation), []).append(plan)
        token = self.bench.sync(client.member_id, client.generation, plan, instance_id=client.instance_id)
        self.asked[token] = client

    def hear(self) -> None:
        for token in sorted(set(self.asked) & set(self.bench.answers)):
            client = self.asked.pop(token)
            response = self.bench.answers[token]
            assert not isinstance(response, LeaveGroupResponse)
            assert isinstance(response, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse)
            error = ErrorCode(response.error_code)
            if error in _LOST:
                client.member_id, client.generation, client.members, client.owned = "", -1, [], None
                self.taken["fenced"] += error is ErrorCode.FENCED_INSTANCE_ID
            elif isinstance(response, JoinGroupResponse):
                self._hear_join(client, error, response)
            elif isinstance(response, SyncGroupResponse) and not error:
                client.owned = response.assignment

    def _hear_join(self, client: Client, error: ErrorCode, response: JoinGroupResponse) -> None:
        if error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id = response.member_id
            self.seen_ids.add(response.member_id)
        if error:
            return
        client.generation = response.generation_id
        client.members = [member.member_id for member in response.members]
        client.owned = None
        if response.skip_assignment:
            client.members = []
            self.taken["replaced"] += 1

    # What must hold.

    def check(self, before: tuple[int, int], timers: int) -> None:
        group = self.bench.group()
        self.check_tokens(group)
        self.check_replay()
        if group is None:
            self.generation = 0
            return
        check_structure(group)
        self.check_generation(group, before, timers)
        self.check_ownership(group)
        self.check_commits(group)
        if group.state is GroupState.STABLE:
            self.taken["stable"] += 1
            if self.bench.committed == len(self.bench.log):
                self.check_record(group)

    def check_tokens(self, group: ClassicGroup | None) -> None:
        """Nobody is forgotten: whoever has no answer is parked in the group, or waits for a commit."""
        members = [] if group is None else list(group.members.values())
        parked = [m.awaiting_join for m in members if m.awaiting_join is not None]
        parked += [m.awaiting_sync for m in members if m.awaiting_sync is not None]
        assert len(parked) == len(set(parked))
        assert self.bench.open_tokens == set(parked) | self.bench.unsent_tokens

    def check_replay(self) -> None:
        """C8: a coordinator that reads the log knows the groups that this one knows, committed ones and newest."""
        bench = self.bench
        assert {g.group_id for g in bench.groups.groups()} == replayed(bench, len(bench.log)).keys()
        assert {g.group_id for g in bench.groups.committed_groups()} == replayed(bench, bench.committed).keys()

    def check_record(self, group: ClassicGroup) -> None:
        """C8: of a stable group the record says all that matters."""
        again = replayed(self.bench, len(self.bench.log))[GROUP]
        assert (again.generation, again.protocol_type, again.protocol_name, again.leader_id) == (
            group.generation,
            group.protocol_type,
            group.protocol_name,
            group.leader_id,
        )
        assert again.static_members == group.static_members
        for member_id, member in group.members.items():
            loaded = again.members[member_id]
            assert loaded.assignment == member.assignment
            assert loaded.session_timeout_ms == member.session_timeout_ms
            assert loaded.rebalance_timeout_ms == member.rebalance_timeout_ms
            assert loaded.protocols == ((group.protocol_name, member.metadata(group.protocol_name)),)
        assert again.members.keys() == group.members.keys()

    def check_generation(self, group: ClassicGroup, before: tuple[int, int], timers: int) -> None:
        """C5, C6: generations rise one by one, and each has one leader."""
        if before == (self.bench.incarnation, self.life):
            assert self.generation <= group.generation <= self.generation + max(1, timers)
        self.generation = group.generation
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert group.leader_id is not None
            key = (self.life, self.bench.incarnation, group.generation)
            assert self.leaders.setdefault(key, group.leader_id) == group.leader_id

    def check_ownership(self, group: ClassicGroup) -> None:
        """C1, C2, C6: in a stable group nobody owns what another does, and all have it from one plan of the leader."""
        if group.state is not GroupState.STABLE:
            return
        owned = b"".join(member.assignment for member in group.members.values())
        assert len(owned) == len(set(owned))
        for client in self.clients:
            member = group.members.get(client.member_id)
            if member is not None and client.generation == group.generation and client.owned is not None:
                assert client.owned == member.assignment

    def check_commits(self, group: ClassicGroup) -> None:
        """C7: a commit is accepted from a member with the current generation, or from nobody to an empty group."""
        for member_id in self.random.sample(sorted(self.seen_ids), min(3, len(self.seen_ids))):
            for generation in (-1, group.generation - 1, group.generation, group.generation + 1):
                try:
                    group.check_offset_commit(member_id, None, generation, False, 9)
                except KafkaError:
                    continue
                if group.is_empty():
                    assert generation == -1
                else:
                    assert member_id in group.members
                    assert generation == group.generation
                    assert group.state is not GroupState.COMPLETING_REBALANCE
        for instance_id, member_id in group.static_members.items():
            for other in self.seen_ids - {member_id}:
                with pytest.raises(KafkaError):
                    group.check_member(other, instance_id)  # C13: whoever was bound before is fenced.

    def end(self) -> None:
        """Everybody falls silent: within their timeouts nobody waits and nobody is a member any more."""
        self.bench.held = False
        self.bench.commit()
        self.bench.pass_time(500_000)
        self.hear()
        assert not self.bench.open_tokens
        group = self.bench.group()
        assert group is None or (group.is_empty() and not group.members and not group.pending_members)


def check_structure(group: ClassicGroup) -> None:
    members = group.members.values()
    assert group.awaiting_join == sum(member.awaiting_join is not None for member in members)
    assert group.static_members == {
        m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None
    }
    assert (group.leader_id in group.members) if group.members else (group.leader_id is None)
    assert not group.pending_members & group.members.keys()
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        assert not group.members
    if group.state is GroupState.STABLE:
        assert all(member.awaiting_sync is None for member in members)
    if group.state is GroupState.PREPARING_REBALANCE:
        assert not group.pending_syncs
        assert all(member.awaiting_sync is None for member in members)
        assert group.is_initial_rebalance or not group.members or not group.all_joined or group.awaiting_join


def replayed(bench: Bench, end_offset: int) -> dict[str, ClassicGroup]:
    _, groups = shard(bench.config, bench.log[:end_offset])
    return {group.group_id: group for group in groups.groups()}


def _walk(seed: int) -> dict[str, int]:
    walk = Walk(seed)
    try:
        walk.run()
    except AssertionError:
        print(f"walk {seed}: OTTLA_WALK={seed} pytest tests/coordinator/classic -k few")
        raise
    return walk.taken


def test_a_few_walks() -> None:
    first = int(os.environ.get("OTTLA_WALK", "0"))
    for seed in range(first, first + 5):
        _walk(seed)


@pytest.mark.slow
def test_walks_go_everywhere() -> None:
    taken: dict[str, int] = {}
    for seed in range(100, 140):
        for what, count in _walk(seed).items():
            taken[what] = taken.get(what, 0) + count
    assert all(taken.values()), f"the walks never came to what they are for: {taken}"


@pytest.mark.long
def test_many_walks() -> None:
    for seed in range(1_000, 6_000):
        _walk(seed)
