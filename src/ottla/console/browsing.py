"""What a record browser's address asks for, and the answer: the query, read and carried out.

Shared by the page and by the download of the same records. Carried out in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ottla.client.blocking import BlockingClient
from ottla.console import filters
from ottla.console.decoding import MODES, Decoder
from ottla.console.reading import Matches, Page, SeenRecord, positions_at_time, read_back, read_forward

LIMIT = 50
LIMIT_MAX = 1_000
STARTS = {"newest": "the newest", "oldest": "the oldest", "offset": "an offset", "time": "a time (UTC)"}


class BadQuery(ValueError):
    """One sentence that says what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    partition: int | None = None
    start: str = "newest"
    offset: int = 0
    time_ms: int = 0
    older_than: Mapping[int, int] | None = None
    """A page before another: by partition, what is before this offset."""
    newer_than: Mapping[int, int] | None = None
    """A page after another: by partition, where it begins."""
    filter: str = ""
    decode: str = "auto"
    committed: bool = True
    limit: int = LIMIT

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Query:
        """Raises `BadQuery`."""
        start = query.get("from", "newest")
        if start not in STARTS:
            raise BadQuery(f"from={start} is none of {', '.join(STARTS)}.")
        partition = query.get("partition", "")
        return cls(
            partition=None if partition in ("", "all") else _number("partition", partition),
            start=start,
            offset=_number("offset", query.get("offset") or "0") if start == "offset" else 0,
            time_ms=parse_time(query.get("time", "")) if start == "time" else 0,
            older_than=_cursor(query.get("older")),
            newer_than=_cursor(query.get("newer")),
            filter=query.get("filter", ""),
            decode=query["decode"] if query.get("decode") in MODES else "auto",
            committed=query.get("uncommitted") != "1",
            limit=min(max(_number("limit", query.get("limit") or str(LIMIT)), 1), LIMIT_MAX),
        )

    def run(self, client: BlockingClient, topic: str, partitions: Sequence[int], decoder: Decoder) -> Page:
        """Raises `KafkaError` and `filters.BadFilter`."""
        matches = self.matches(decoder)
        wanted = list(partitions) if self.partition is None else [self.partition]
        cursor = self.older_than if self.older_than is not None else self.newer_than
        if cursor is not None:
            wanted = [each for each in wanted if each in cursor]
        if self.older_than is not None or (self.newer_than is None and self.start == "newest"):
            before = {each: None if self.older_than is None else self.older_than[each] for each in wanted}
            return read_back(client, topic, before, limit=self.limit, matches=matches, committed=self.committed)
        if self.newer_than is not None:
            at = {each: self.newer_than[each] for each in wanted}
        elif self.start == "time":
            at = positions_at_time(client, topic, wanted, self.time_ms)
        else:
            at = dict.fromkeys(wanted, self.offset)
        return read_forward(client, topic, at, limit=self.limit, matches=matches, committed=self.committed)

    def matches(self, decoder: Decoder) -> Matches | None:
        test = filters.parse(self.filter)
        if test is None:
            return None

        def matches(each: SeenRecord) -> bool:
            record = each.record
            candidate = filters.Candidate(
                partition=each.partition,
                offset=record.offset,
                key=decoder.decode(record.key),
                value=decoder.decode(record.value),
                headers=record.headers,
            )
            return test(candidate)

        return matches


def cursor_text(positions: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def parse_time(text: str) -> int:
    """ISO 8601, in UTC if it does not say otherwise; or milliseconds since 1970. Raises `BadQuery`."""
    if text.isdecimal() and 8 < len(text) < 16:
        return int(text)
    try:
        when = datetime.fromisoformat(text)
        return int(when.replace(tzinfo=when.tzinfo or UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadQuery("Write the time as 2026-11-16T09:30.") from None


def _cursor(text: str | None) -> dict[int, int] | None:
    if text is None:
        return None
    found = {}
    for part in filter(None, text.split(",")):
        partition, _, offset = part.partition(":")
        found[_number("partition", partition)] = _number("offset", offset)
    return found


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 19:
        raise BadQuery(f"{name}={text[:40]} is not a number: write one, as in {name}=17.")
    return int(text)
