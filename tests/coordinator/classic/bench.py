"""Classic groups without a broker: a partition that is a list, timers on a clock that stands still until it is moved.

`Bench` does what the driver of a shard does: it replays and appends the records of an outcome, holds the answers back
until they are committed, sets timers, and tells how an append ended. Every record passes through its stored form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from ottla.config.node import NodeConfig
from ottla.coordinator.classic import ClassicGroups, Joiner
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.groups import Shared
from ottla.coordinator.outcome import Answer, CancelTimer, Outcome, SetTimer
from ottla.coordinator.stored import GROUP_KINDS, StoredRecord
from ottla.errors import ErrorCode
from ottla.metadata.images import EMPTY_IMAGE
from ottla.wire.message import Message
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "g"
R = TypeVar("R")


@cache
def settings(initial_delay_ms: int = 3_000, members_max: int = 100) -> NodeConfig:
    return NodeConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "group.initial.rebalance.delay.ms": str(initial_delay_ms),
            "group.max.size": str(members_max),
        }
    )


def shard(config: NodeConfig, log: Sequence[tuple[bytes, bytes | None]]) -> tuple[Shared, ClassicGroups]:
    """Classic groups that have read the log."""
    shared = Shared(lambda: config)
    groups = ClassicGroups(shared)
    shared.timeline.loading = True
    for offset, (key, value) in enumerate(log):
        shared.timeline.begin(offset)
        groups.replay(stored(key, value), -1, -1)
    shared.timeline.loading = False
    return shared, groups


def stored(key: bytes, value: bytes | None) -> StoredRecord:
    record = GROUP_KINDS.decode(key, value)
    assert isinstance(record, StoredRecord)
    return record


class _Pending(NamedTuple):
    """An outcome that waits until everything before `end_offset` is committed."""

    end_offset: int
    answers: list[tuple[int, Message]]
    tag: object


class Bench:
    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.committed = 0
        self._appended = 0
        """What lies before is in the log, and cannot fail any more."""
        self.held = False
        """Appends wait for `commit` or `fail`."""
        self.answers: dict[int, Message] = {}
        self.open_tokens: set[int] = set()
        self.timers: dict[tuple[str, ...], int] = {}
        self.incarnation = 0
        self._pending: deque[_Pending] = deque()
        self._tokens = 0
        self._start()

    def _start(self) -> None:
        shared, self.groups = shard(self.config, self.log)
        self.timeline = shared.timeline
        self.committed = self._appended = len(self.log)
        for timers in self.groups.take_up(EMPTY_IMAGE):
            self._run(Outcome(effects=timers), None)
        self._run(self.groups.on_loaded(EMPTY_IMAGE, self.now_ms), None)

    # Requests: each gives a token, under which its answer will be found.

    def join(
        self,
        client: str,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b""),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        group: str = GROUP,
    ) -> int:
        token = self._token()
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        joiner = Joiner(client_id=client, client_host="/127.0.0.1", api_version=version, unique=str(token), token=token)
        self._run(self.groups.join(request, joiner, self.now_ms), token)
        return token

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group: str = GROUP,
    ) -> int:
        token = self._token()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=other, assignment=assignment)
                for other, assignment in (assignments or {}).items()
            ],
        )
        self._run(self.groups.sync(request, token, self.now_ms), token)
        return token

    def beat(self, member_id: str, generation: int, *, instance_id: str | None = None, group: str = GROUP) -> int:
        token = self._token()
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        self._run(self.groups.heartbeat(request, self.now_ms), token)
        return token

    def leave(self, *who: tuple[str, str | None], group: str = GROUP) -> int:
        """Each of `who` is a member id and an instance id."""
        token = self._token()
        members = [MemberIdentity(member_id=member_id, group_instance_id=instance_id) for member_id, instance_id in who]
        self._run(self.groups.leave(LeaveGroupRequest(group_id=group, members=members), self.now_ms), token)
        return token

    def delete(self, group: str = GROUP) -> None:
        """An administrator, or the expiry of offsets, takes the group away."""
        self._run(Outcome(records=[StoredRecord(GroupMetadataKey(group=group), None)]), None)

    # The partition, and time.

    def commit(self) -> None:
        """The high watermark reaches the end of the log."""
        self.committed = self._appended = len(self.log)
        self.timeline.commit(self.committed)
        while self._pending and self._pending[0].end_offset <= self.committed:
            pending = self._pending.popleft()
            for token, response in pending.answers:
                self._answer(token, response)
            self._written(pending.tag, ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """Nothing behind the high watermark was written, but for what took too long before."""
        self.timeline.revert(self._appended)
        del self.log[self._appended :]
        failed, self._pending = self._pending, deque()
        for pending in failed:
            self._written(pending.tag, error)
            for token, response in pending.answers:
                if token in self.open_tokens:
                    self._answer(token, _failed(response, error))

    def time_out(self, error: ErrorCode) -> None:
        """Who waits for a commit waits no longer; what was written stays, and may be committed yet."""
        self._appended = len(self.log)
        late, self._pending = self._pending, deque()
        for pending in late:
            self._written(pending.tag, error)
            for token, response in pending.answers:
                if token in self.open_tokens:
                    self._answer(token, _failed(response, error))

    def move(self) -> None:
        """The partition gets another leader, which has what was committed and nothing else."""
        del self.log[self.committed :]
        self._pending.clear()
        self.timers.clear()
        for token in sorted(self.open_tokens):
            self._answer(token, HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
        self.incarnation += 1
        self._start()

    def pass_time(self, duration_ms: int) -> list[tuple[str, ...]]:
        """Let time pass; the timers that fired meanwhile, in order."""
        end_ms = self.now_ms + duration_ms
        fired: list[tuple[str, ...]] = []
        while self.timers:
            key = min(self.timers, key=lambda key: (self.timers[key], key))
            if self.timers[key] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            fired.append(key)
            self._run(self.groups.on_timer(key, self.now_ms), None)
        self.now_ms = end_ms
        return fired

    # Looking.

    def group(self, group: str = GROUP) -> ClassicGroup | None:
        return self.groups.group(group)

    def records(self, since: int = 0) -> list[StoredRecord]:
        return [stored(key, value) for key, value in self.log[since:]]

    @property
    def unsent_tokens(self) -> set[int]:
        """Those whose answer waits for a commit."""
        return {token for pending in self._pending for token, _ in pending.answers}

    # What a driver does.

    def _token(self) -> int:
        self._tokens += 1
        self.open_tokens.add(self._tokens)
        return self._tokens

    def _run(self, outcome: Outcome[R], token: int | None) -> None:
        for record in outcome.records:
            key, value = GROUP_KINDS.encode(record)
            self.timeline.begin(len(self.log))
            self.groups.replay(stored(key, value), -1, -1)
            self.log.append((key, value))
        answers: list[tuple[int, Message]] = []
        for effect in outcome.effects:
            match effect:
                case SetTimer():
                    self.timers[effect.key] = self.now_ms + effect.delay_ms
                case CancelTimer():
                    self.timers.pop(effect.key, None)
                case Answer():
                    answers.append((effect.token, effect.response))
                case _:
                    raise AssertionError(f"classic groups have no use for {effect}")
        if outcome.response is not None:
            assert token is not None
            assert isinstance(outcome.response, Message)
            answers.append((token, outcome.response))
        self._pending.append(_Pending(len(self.log), answers, outcome.tag))
        if not self.held or self.committed == len(self.log):
            self.commit()

    def _written(self, tag: object, error: ErrorCode) -> None:
        if tag is not None:
            assert isinstance(tag, tuple)
            assert tag[0] == "classic"
            self._run(self.groups.on_written(tag, error, self.now_ms), None)

    def _answer(self, token: int, response: Message) -> None:
        self.open_tokens.remove(token)  # Nobody is answered twice.
        self.answers[token] = response


def _failed(response: Message, error: ErrorCode) -> Message:
    """What the handler tells whose records could not be written."""
    return (
        LeaveGroupResponse(error_code=error)
        if isinstance(response, LeaveGroupResponse)
        else type(response)(
            error_code=error  # type: ignore[call-arg]
        )
    )
