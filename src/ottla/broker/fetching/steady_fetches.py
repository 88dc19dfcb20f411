"""The fetch of a consumer that reads on: a request like the one before but for where it stands.

Most fetches of a busy consumer of one partition differ from the one before in two numbers, the session's epoch and the
offset. A connection remembers its last fetch of this kind; the next one is then compared with it byte by byte, and what
has not changed is not read, looked up and checked again. It is answered here if there is something to send at once.
Whatever is out of the ordinary is left, untouched, to `api/fetch`, which answers the same in its own time
(`tests/seams/test_steady_fetches.py`).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from ottla.broker.fetching.fetch_sessions import FetchPartition, FetchSession
from ottla.broker.fetching.partition_reader import IN_LINE_BYTES_MAX
from ottla.broker.hosted import HostedPartition
from ottla.broker.reply import Ready
from ottla.errors import KafkaError
from ottla.runtime import DiskError, FileSpan
from ottla.wire.fetch_codec import Fetched, Request, Wanted, pack

if TYPE_CHECKING:
    from ottla.broker.services import Services

FIRST_VERSION = 15
"""From here on a request of one partition, by its topic's id, has everything at the same places."""

_EPOCH = Struct(">i").unpack_from
_OFFSET = Struct(">q").unpack_from
_EPOCH_AT, _EPOCH_END = 17, 21
_OFFSET_AT, _OFFSET_END = 47, 55

_READ_UNCOMMITTED = 0


class SteadyFetch:
    """Made by `api/fetch` when it has answered such a request; owned by the connection."""

    __slots__ = (
        "_after",
        "_before",
        "_between",
        "_hosted",
        "_known",
        "_max_bytes",
        "_min_bytes",
        "_session",
        "_version",
        "_wanted",
    )

    def __init__(
        self,
        body: bytes,
        version: int,
        min_bytes: int,
        max_bytes: int,
        session: FetchSession,
        known: FetchPartition,
        hosted: HostedPartition,
    ) -> None:
        self._before = body[:_EPOCH_AT]
        self._between = body[_EPOCH_END:_OFFSET_AT]
        self._after = body[_OFFSET_END:]
        self._version = version
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._session = session
        self._known = known
        self._wanted = known.wanted
        self._hosted = hosted

    def answer(self, services: Services, body: bytes, version: int, correlation_id: int) -> Ready | None:
        """The reply to a request that goes on from the one before; None, and nothing has happened, if it is another or
        cannot be answered at once."""
        if (
            body[_EPOCH_END:_OFFSET_AT] != self._between
            or body[_OFFSET_END:] != self._after
            or body[:_EPOCH_AT] != self._before
            or version != self._version
        ):
            return None
        session, known, hosted, wanted = self._session, self._known, self._hosted, self._wanted
        sessions = services.fetch_sessions
        if (
            hosted.leader is None
            or hosted.offline
            or services.authorizer is not None
            or services.quotas is not None
            or not services.read_ahead.is_idle
            or wanted.current_leader_epoch not in (-1, hosted.image.leader_epoch)
            or session.epoch != _EPOCH(body, _EPOCH_AT)[0]
            or not sessions.has(session)
            or len(session.partitions) != 1
            or session.partitions.get((wanted.topic, wanted.partition)) is not known
        ):
            return None
        offset: int = _OFFSET(body, _OFFSET_AT)[0]
        log = hosted.log
        high_watermark = log.high_watermark
        if not log.log_start_offset <= offset < high_watermark:
            return None
        try:
            span = log.read(offset, max_bytes=self._max_bytes, upper_bound=high_watermark)
        except KafkaError:
            return None
        if span is None or span.size < self._min_bytes:
            return None
        data = None
        if span.size <= IN_LINE_BYTES_MAX:
            try:
                data = span.file.read_now(span.position, span.size)
            except DiskError:
                return None
            if data is None:
                return None
        elif not span.file.cached(span.position, span.size):
            return None
        sessions.use(session, services.clock.wall_ms())
        topic, partition, _, *others = wanted
        known.wanted = Wanted(topic, partition, offset, *others)
        known.told_high_watermark = high_watermark
        known.told_log_start = log.log_start_offset
        meters = hosted.meters
        meters.fetches.value += 1
        meters.bytes_out.value += span.size
        found: Fetched[FileSpan] = Fetched(topic, partition)
        found.span = span
        found.data = data
        found.high_watermark = high_watermark
        found.last_stable_offset = log.last_stable_offset
        found.log_start = log.log_start_offset
        return pack(version, correlation_id, session.session_id, [found])


def is_steady(request: Request, version: int) -> bool:
    """May such a request be gone on from?"""
    return (
        version >= FIRST_VERSION
        and len(request.wanted) == 1
        and request.wanted[0].last_fetched_epoch < 0
        and request.isolation_level == _READ_UNCOMMITTED
        and not request.forgotten
        and not request.rack
    )
