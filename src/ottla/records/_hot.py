"""What is done to every byte of produced records, and to every record of a coordinator, compiled where it can be
(`ottla.compiled`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.compiled import side

_side = side("ottla.records")
NATIVE = _side.__name__.endswith("._native")
"""Is it the compiled side?"""

if TYPE_CHECKING:
    from ottla.records._pure import (
        check,
        crc32c,
        crc_matches,
        pack_columns,
        pack_records,
        parse_header,
        part_rows,
        place_keys,
        unpack_records,
        walk,
    )
else:
    check, crc32c, crc_matches = _side.check, _side.crc32c, _side.crc_matches
    parse_header, walk = _side.parse_header, _side.walk
    pack_columns, pack_records, unpack_records = _side.pack_columns, _side.pack_records, _side.unpack_records
    part_rows, place_keys = _side.part_rows, _side.place_keys

__all__ = [
    "NATIVE",
    "check",
    "crc32c",
    "crc_matches",
    "pack_columns",
    "pack_records",
    "parse_header",
    "part_rows",
    "place_keys",
    "unpack_records",
    "walk",
]
