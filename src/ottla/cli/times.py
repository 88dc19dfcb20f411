"""Moments and durations as people type them, and as they are shown."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from ottla.errors import UsageError

_DURATION = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_LONG_MAX = (1 << 63) - 1
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def parse_moment(text: str, *, now: int | None = None) -> int:
    """Milliseconds since 1970: as such a number, as a date and time (UTC if it does not say), or as `-10m`: so long
    ago. No record is older than 1970, and what is less than that means something else to a broker."""
    return min(max(_moment(text, now_ms() if now is None else now), 0), _LONG_MAX)


def _moment(text: str, now: int) -> int:
    wanted = text.strip()
    if wanted.isdecimal():
        return int(wanted)
    if wanted == "now":
        return now
    if wanted.startswith("-"):
        return now - parse_duration(wanted[1:])
    try:
        moment = datetime.fromisoformat(wanted)
    except ValueError:
        raise UsageError(
            f"{text!r} is no time: write milliseconds since 1970, a date as in 2026-01-31T12:00:00Z, or -10m."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """Milliseconds, of `90s`, `10m`, `2h`, `7d`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is no duration: write as in 500ms, 90s, 10m, 2h or 7d.")
    return int(found[1]) * _UNITS_MS[found[2]]


def show_moment(timestamp_ms: int | None) -> str:
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # Somebody took microseconds for milliseconds: no calendar has it.
        return f"{timestamp_ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"
