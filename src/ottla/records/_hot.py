"""Which side does the work on every byte: the compiled `_native`, or `_pure` where it could not be built.

Both have the same functions with the same behaviour, and the tests hold one against the other. `OTTLA_PURE=1` asks for
Python even where the compiled module is there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.records._pure import check, crc32c, crc_matches, parse_header, walk

    NATIVE: bool
elif os.environ.get("OTTLA_PURE", "") not in ("", "0"):
    from ottla.records._pure import check, crc32c, crc_matches, parse_header, walk

    NATIVE = False
else:
    try:
        from ottla.records._native import check, crc32c, crc_matches, parse_header, walk

        NATIVE = True
    except ImportError:
        from ottla.records._pure import check, crc32c, crc_matches, parse_header, walk

        NATIVE = False

__all__ = ["NATIVE", "check", "crc32c", "crc_matches", "parse_header", "walk"]
