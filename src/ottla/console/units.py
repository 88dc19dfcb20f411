"""Numbers as people read them: each says its unit."""

from __future__ import annotations

from datetime import UTC, datetime

_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
NOTHING = "–"


def count(value: int | None, unit: str = "", plural: str = "") -> str:
    """`1,204 records`. The plural of `unit` has an s, if not told otherwise."""
    if value is None:
        return NOTHING
    text = f"{value:,}"
    if not unit:
        return text
    return f"{text} {unit if value == 1 else plural or unit + 's'}"


def size(value: float | None) -> str:
    """`1.5 MiB`."""
    if value is None:
        return NOTHING
    index = 0
    while abs(value) >= 1024 and index < len(_SIZES) - 1:
        value /= 1024
        index += 1
    if index == 0:
        return f"{value:.0f} {'byte' if round(value) == 1 else 'bytes'}"
    return f"{value:.{0 if abs(value) >= 100 else 1}f} {_SIZES[index]}"


def rate(value: float | None, unit: str = "records") -> str:
    """`12.4 records/s`."""
    if value is None:
        return NOTHING
    if unit == "bytes":
        return f"{size(value)}/s"
    digits = 0 if value == 0 or abs(value) >= 100 else 1
    return f"{value:,.{digits}f} {unit}/s"


def duration(milliseconds: float | None) -> str:
    """`350 ms`, `12.0 s`, `5 min`, `3 h`, `2 days`."""
    if milliseconds is None:
        return NOTHING
    if abs(milliseconds) < 1000:
        return f"{milliseconds:.{1 if abs(milliseconds) < 10 else 0}f} ms"
    seconds = milliseconds / 1000
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if abs(seconds) < limit:
            return f"{seconds / divisor:.{1 if unit == 's' else 0}f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def moment(timestamp_ms: int) -> str:
    """`2026-11-16 00:50:12.345 UTC`; what no calendar has is shown as a number."""
    try:
        when = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return f"{when:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d} UTC"


def clock(time_s: float) -> str:
    """`00:50:12 UTC`."""
    return f"{datetime.fromtimestamp(time_s, UTC):%H:%M:%S} UTC"
