"""What is done to every byte of produced records, compiled where it can be (`ottla.compiled`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.compiled import side

_side = side("ottla.records")
NATIVE = _side.__name__.endswith("._native")
"""Is it the compiled side?"""

if TYPE_CHECKING:
    from ottla.records._pure import check, crc32c, crc_matches, parse_header, walk
else:
    check, crc32c, crc_matches = _side.check, _side.crc32c, _side.crc_matches
    parse_header, walk = _side.parse_header, _side.walk

__all__ = ["NATIVE", "check", "crc32c", "crc_matches", "parse_header", "walk"]
