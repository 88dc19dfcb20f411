"""A member of a classic group, request by request: one connection that says what the test wants and hides nothing.

JoinGroup and SyncGroup may wait for other members, so each has two halves: `start_…` sends it, `joined` and `synced`
take the answer. What a member was told last (its id, the generation) is what it says next, unless the test says other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.errors import ErrorCode
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.wire_client import WireClient

JOIN_VERSIONS = range(10)
SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 5, 4, 5

Protocols = Sequence[tuple[str, bytes]]


def subscription(*topics: str, said: bytes | None = None) -> bytes:
    """What a consumer says under any protocol. Kafka 4.3.1 never ends a rebalance if it cannot read that."""
    return b"\0\0" + ConsumerProtocolSubscription(topics=list(topics), user_data=said).encode(0)


PROTOCOLS = (("range", subscription("t")),)


class GroupMember(WireClient):
    def __init__(
        self,
        address: tuple[str, int],
        group: str,
        *,
        instance_id: str | None = None,
        client_id: str = "member",
        version: int = 9,
        session_ms: int = 30_000,
        rebalance_ms: int = 30_000,
        protocol_type: str = "consumer",
    ) -> None:
        """`version` is JoinGroup's; the other requests are of the last versions that are not newer."""
        super().__init__(address, client_id=client_id, timeout_s=60)
        self.address = address
        self.group = group
        self.instance_id = instance_id
        self.version = version
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.protocol_type = protocol_type
        self.member_id = ""
        self.generation = -1
        self.protocol_name: str | None = "range"
        self._joins: list[int] = []
        self._syncs: list[int] = []

    # Joining.

    def join_request(self, protocols: Protocols = PROTOCOLS, member_id: str | None = None) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
            reason="a test",
        )

    def start_join(self, protocols: Protocols = PROTOCOLS, member_id: str | None = None) -> None:
        self._joins.append(self.send(self.join_request(protocols, member_id), self.version))

    def joined(self) -> JoinGroupResponse:
        response = self.receive(JoinGroupResponse, self.version, self._joins.pop(0))
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = response.member_id
        if response.error_code == ErrorCode.NONE:
            self.generation = response.generation_id
            self.protocol_name = response.protocol_name
        return response

    def try_join(self, protocols: Protocols = PROTOCOLS, member_id: str | None = None) -> JoinGroupResponse:
        self.start_join(protocols, member_id)
        return self.joined()

    def get_id(self, protocols: Protocols = PROTOCOLS) -> None:
        """The first step of a new member (KIP-394), where there is one."""
        if self.version >= 4 and self.instance_id is None and not self.member_id:
            assert self.try_join(protocols).error_code == ErrorCode.MEMBER_ID_REQUIRED

    def enter(self, protocols: Protocols = PROTOCOLS) -> None:
        """Ask to join, as a client does, and do not wait for the answer."""
        self.get_id(protocols)
        self.start_join(protocols)

    def join(self, protocols: Protocols = PROTOCOLS) -> JoinGroupResponse:
        self.enter(protocols)
        response = self.joined()
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
        return response

    # The rest.

    def sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        version = self.sync_version
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id if version >= 3 else None,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )

    @property
    def sync_version(self) -> int:
        return min(self.version, SYNC_VERSION)

    def start_sync(self, assignments: Mapping[str, bytes] | None = None) -> None:
        self._syncs.append(self.send(self.sync_request(assignments or {}), self.sync_version))

    def synced(self) -> SyncGroupResponse:
        return self.receive(SyncGroupResponse, self.sync_version, self._syncs.pop(0))

    def try_sync(self, assignments: Mapping[str, bytes] | None = None) -> SyncGroupResponse:
        self.start_sync(assignments)
        return self.synced()

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> bytes:
        response = self.try_sync(assignments)
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
        return response.assignment

    def beat(self) -> ErrorCode:
        version = min(self.version, HEARTBEAT_VERSION)
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id if version >= 3 else None,
        )
        return ErrorCode(self.call(request, HeartbeatResponse, version).error_code)

    def leave_response(self, *members: MemberIdentity) -> LeaveGroupResponse:
        """Of this member, unless others are named."""
        version = min(self.version, LEAVE_VERSION)
        request = LeaveGroupRequest(group_id=self.group)
        if version < 3:
            request.member_id = self.member_id
        else:
            own = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason="a test")
            request.members = list(members) or [own]
        return self.call(request, LeaveGroupResponse, version)

    def leave(self) -> ErrorCode:
        response = self.leave_response()
        return ErrorCode(response.error_code or next((member.error_code for member in response.members), 0))


def find_coordinator(client: WireClient, group: str) -> ErrorCode:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    (found,) = client.call(request, FindCoordinatorResponse, 6).coordinators
    return ErrorCode(found.error_code)
