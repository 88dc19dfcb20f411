"""The follower's side of a fetch session (KIP-227): after a first full request, only what changed is said.

Owns what the leader knows we want. Its invariant: what was put and not dropped is either known to the leader, as it was
last put, or part of the next request. Driven by `pipeline`, which has every request answered, or lost, before it lets
the session hear what came of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode
from ottla.model import Uuid
from ottla.wire.messages.fetch_request import FetchPartition, FetchTopic, ForgottenTopic

if TYPE_CHECKING:
    from ottla.wire.messages.fetch_response import FetchResponse

_NO_SESSION = 0
_NEW_EPOCH = 0
_EPOCH_MAX = (1 << 31) - 1


class PartitionKey(NamedTuple):
    topic_id: Uuid
    partition: int


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    attempt: int
    """Which of our attempts at a session it belongs to."""


class FetchSession:
    """One connection's. `epoch` counts the requests of a session; 0 asks for a new one, and ends the one it names."""

    __slots__ = ("_attempt", "_changed", "_dropped", "_members", "epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = _NO_SESSION
        self.epoch = _NEW_EPOCH
        self._attempt = 0
        self._members: dict[PartitionKey, FetchPartition] = {}
        """All that we want, in the order in which it was last put: a leader that has no room for all of it serves from
        the front, and what was just served goes to the back."""
        self._changed: dict[PartitionKey, None] = {}
        """Put since the last request."""
        self._dropped: dict[PartitionKey, None] = {}
        """No longer wanted, which the leader has not heard."""

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._members

    @property
    def is_full(self) -> bool:
        """Will the next request name everything?"""
        return self.epoch == _NEW_EPOCH

    def put(self, key: PartitionKey, partition: FetchPartition) -> None:
        """Fetch this, as `partition` says, from the next request on."""
        self._members.pop(key, None)
        self._members[key] = partition
        self._changed[key] = None
        self._dropped.pop(key, None)

    def drop(self, key: PartitionKey) -> None:
        """Do not fetch this any more."""
        if self._members.pop(key, None) is not None:
            self._changed.pop(key, None)
            # It may be news to the leader that we ever wanted it; to forget what it never knew does no harm.
            self._dropped[key] = None

    def next_request(self) -> SessionRequest:
        if self.is_full:
            named, forgotten = list(self._members), []
        else:
            named, forgotten = list(self._changed), _forgotten(self._dropped)
        topics: dict[Uuid, FetchTopic] = {}
        for key in named:
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = FetchTopic(topic_id=key.topic_id)
            topic.partitions.append(self._members[key])
        request = SessionRequest(self.session_id, self.epoch, list(topics.values()), forgotten, self._attempt)
        self._changed.clear()
        self._dropped.clear()
        if not self.is_full:
            self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1
        return request

    def on_response(self, attempt: int, response: FetchResponse) -> bool:
        """May what is in the answer be used? If not, the next request starts a new session, if that has not begun."""
        if attempt != self._attempt:
            return False
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = _NO_SESSION
            self._start_over()
            return False
        if self.is_full:
            self.session_id = response.session_id
            if response.session_id != _NO_SESSION:
                self.epoch = 1
        elif response.session_id != self.session_id:
            # The leader has put the session out; what it answers is still ours.
            self.session_id = _NO_SESSION
            self._start_over()
        return True

    def on_lost(self, attempt: int) -> None:
        """No answer came: nobody knows whether the leader heard the request, so the session is ended by name."""
        if attempt == self._attempt:
            self._start_over()

    def _start_over(self) -> None:
        self.epoch = _NEW_EPOCH
        self._attempt += 1
        self._dropped.clear()
        self._changed = dict.fromkeys(self._members)


def _forgotten(keys: dict[PartitionKey, None]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for key in keys:
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = ForgottenTopic(topic_id=key.topic_id)
        topic.partitions.append(key.partition)
    return list(topics.values())
