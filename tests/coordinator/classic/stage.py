"""Carries out the commands of the transcripts: clients with short names that talk to one group.

    config delay=3000 max=2        how the broker is set up
    join a [fresh] [instance=i] [protocols=range,sticky] [type=consumer] [session=…] [rebalance=…] [version=…] [says=…]
                                   `a` sends JoinGroup, with the member id that it was last told unless `fresh`
    sync a [a=x b=y …] [generation=…] [protocol=…] [type=…] [instance=…] [as=<member id>]
    beat a, leave a [b …], leave instance=i
    commit? a [generation=…]       would an offset commit be accepted?
    hold / commit / fail <error>   what becomes of appends
    late <error>                   they take so long that nobody waits for them
    move, limit <n>                another node leads the partition, with another limit
    pass <ms>                      time passes
    delete                         the group is deleted

A member id is the client's name (or the instance id) and a number. Then come the answers, the records (`wrote …`) and
the group as it is now.
"""

from __future__ import annotations

from ottla.coordinator.classic.group import ClassicGroup
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.message import Message
from ottla.wire.messages.group_metadata_value import GroupMetadataValue
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.coordinator.classic.bench import Bench, settings
from tests.transcript import Command

_NO_OPTIONS = ("generation", "protocol", "type", "instance", "as")


class Stage:
    def __init__(self) -> None:
        self._bench = Bench(settings())
        self._asked: dict[int, str] = {}
        """Token → what the client asked, for those not answered yet."""
        self._ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._instances: dict[str, str] = {}
        self._shown = ""

    def execute(self, command: Command) -> list[str]:
        bench = self._bench
        written = len(bench.log)
        said = self._carry_out(command)
        written = min(written, len(bench.log))
        for token in sorted(set(self._asked) & set(bench.answers)):
            said.append(self._heard(self._asked.pop(token), bench.answers[token]))
        said += [_shown_record(record.value) for record in bench.records(written)]
        shown = _shown(bench.group())
        if shown != self._shown:
            said.append(shown)
            self._shown = shown
        return said

    def _carry_out(self, command: Command) -> list[str]:
        bench = self._bench
        client = command.words[0] if command.words else ""
        match command.name:
            case "config":
                bench.config = settings(command.integer("delay", 0), command.integer("max", 100))
                bench.move()
            case "join":
                self._join(client, command)
            case "sync":
                plan = {name: text for name, text in command.options.items() if name not in _NO_OPTIONS}
                token = bench.sync(
                    self._id(client, command),
                    command.integer("generation", self._generations.get(client, -1)),
                    {self._ids[name]: text.encode() for name, text in plan.items()},
                    instance_id=command.options.get("instance", self._instances.get(client)),
                    protocol_type=command.options.get("type"),
                    protocol_name=command.options.get("protocol"),
                )
                self._asked[token] = f"{client} sync"
            case "beat":
                generation = command.integer("generation", self._generations.get(client, -1))
                instance = command.options.get("instance", self._instances.get(client))
                token = bench.beat(self._id(client, command), generation, instance_id=instance)
                self._asked[token] = f"{client} beat"
            case "leave":
                if "instance" in command.options:
                    who: list[tuple[str, str | None]] = [("", command.options["instance"])]
                else:
                    who = [(self._ids.get(name, name), self._instances.get(name)) for name in command.words]
                self._asked[bench.leave(*who)] = f"{client or command.options['instance']} leave"
            case "commit?":
                return [self._would_commit(client, command)]
            case "hold":
                bench.held = True
            case "commit":
                bench.held = False
                bench.commit()
            case "fail":
                bench.held = False
                bench.fail(ErrorCode[client])
            case "late":
                bench.time_out(ErrorCode[client])
            case "move":
                bench.move()
            case "limit":
                bench.config = settings(0, int(client))
                bench.move()
            case "pass":
                return [f"{' '.join(key[1:2] + key[3:])} timer" for key in bench.pass_time(int(client))]
            case "delete":
                bench.delete()
            case _:
                raise AssertionError(f"line {command.line}: what is {command.name}?")
        return []

    def _join(self, client: str, command: Command) -> None:
        if "instance" in command.options:
            self._instances[client] = command.options["instance"]
        names = command.options.get("protocols", "range").split(",")
        member_id = command.options.get("as", "" if "fresh" in command.words else self._ids.get(client, ""))
        token = self._bench.join(
            client,
            member_id,
            instance_id=self._instances.get(client),
            protocols=[(name, command.options.get("says", "").encode()) for name in names if name],
            protocol_type=command.options.get("type", "consumer"),
            session_ms=command.integer("session", 10_000),
            rebalance_ms=command.integer("rebalance", 60_000),
            version=command.integer("version", 9),
        )
        self._asked[token] = f"{client} join"

    def _id(self, client: str, command: Command) -> str:
        return command.options.get("as", self._ids.get(client, ""))

    def _would_commit(self, client: str, command: Command) -> str:
        group = self._bench.group()
        assert group is not None
        generation = command.integer("generation", self._generations.get(client, -1))
        member_id = "" if client == "nobody" else self._id(client, command)
        try:
            group.check_offset_commit(member_id, self._instances.get(client), generation, False, 9)
        except KafkaError as error:
            return error.code.name
        return "accepted"

    def _heard(self, asked: str, response: Message) -> str:
        client = asked.split()[0]
        error = ErrorCode(getattr(response, "error_code"))  # noqa: B009
        match response:
            case JoinGroupResponse():
                if error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                    self._ids[client] = response.member_id
                elif error is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._ids.pop(client, None)
                if error:
                    return f"{asked}: {error.name} {response.member_id}".rstrip()
                self._generations[client] = response.generation_id
                others = ",".join(f"{m.member_id}{_said(m.metadata)}" for m in response.members)
                return (
                    f"{asked}: {response.member_id} generation={response.generation_id} leader={response.leader} "
                    f"{response.protocol_name} [{others}]{' skip the assignment' if response.skip_assignment else ''}"
                )
            case SyncGroupResponse():
                return f"{asked}: {error.name if error else repr(response.assignment.decode())}"
            case LeaveGroupResponse():
                members = [
                    f"{m.group_instance_id or m.member_id}={ErrorCode(m.error_code).name}" for m in response.members
                ]
                return f"{asked}: {' '.join([error.name, *members])}"
            case _:
                assert isinstance(response, HeartbeatResponse)
                return f"{asked}: {error.name}"


def _said(metadata: bytes) -> str:
    return f":{metadata.decode()}" if metadata else ""


def _shown_record(value: Message | None) -> str:
    if value is None:
        return "wrote a tombstone"
    assert isinstance(value, GroupMetadataValue)
    members = " ".join(f"{member.member_id}={member.assignment.decode()}" for member in value.members)
    return f"wrote generation={value.generation} leader={value.leader} {value.protocol} [{members}]"


def _shown(group: ClassicGroup | None) -> str:
    if group is None:
        return "no group"
    members = " ".join(
        member.member_id
        + ("*" if member.member_id == group.leader_id else "")
        + ("?" if member.awaiting_join is not None else "")
        + ("!" if member.awaiting_sync is not None else "")
        for member in group.members.values()
    )
    pending = f" pending={','.join(sorted(group.pending_members))}" if group.pending_members else ""
    return f"{group.state_name()} generation={group.generation} [{members}]{pending}"
