"""Fetches that a leader keeps until there is something to answer: records, a higher high watermark, or the end of their
patience. A leader that is one no more refuses them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.raft.effects import Token

if TYPE_CHECKING:
    from ottla.raft.quorum import Quorum
    from ottla.wire.messages.fetch_request import FetchRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedFetch:
    token: Token
    request: FetchRequest
    version: int
    deadline_ms: int


class ParkedFetches:
    __slots__ = ("_by_token",)

    def __init__(self) -> None:
        self._by_token: dict[Token, ParkedFetch] = {}

    def add(self, fetch: ParkedFetch) -> None:
        assert fetch.token not in self._by_token, "a request is answered once"
        self._by_token[fetch.token] = fetch

    def cancel(self, token: Token) -> None:
        self._by_token.pop(token, None)

    def take_all(self) -> list[ParkedFetch]:
        taken = list(self._by_token.values())
        self._by_token.clear()
        return taken

    def take_expired(self, now_ms: int) -> list[ParkedFetch]:
        taken = [fetch for fetch in self._by_token.values() if fetch.deadline_ms <= now_ms]
        for fetch in taken:
            del self._by_token[fetch.token]
        return taken

    def deadline_ms(self) -> int | None:
        return min((fetch.deadline_ms for fetch in self._by_token.values()), default=None)

    def __len__(self) -> int:
        return len(self._by_token)

    def refuse_all(self, quorum: Quorum) -> None:
        from ottla.errors import ErrorCode
        from ottla.raft import responses
        from ottla.raft.effects import Respond

        for fetch in self.take_all():
            refusal = responses.fetch(quorum, fetch.version, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            quorum.emit(Respond(token=fetch.token, response=refusal))
