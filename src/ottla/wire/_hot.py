"""Which side finds and answers the commonest produce request: the compiled `_native`, or `_pure` where it is missing.

Both have the same functions with the same behaviour, and the tests hold one against the other. `OTTLA_PURE=1` asks for
Python even where the compiled module is there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("OTTLA_PURE", "") not in ("", "0"):
    from ottla.wire._pure import find_opening, pack_one
else:
    try:
        from ottla.wire._native import find_opening, pack_one
    except ImportError:
        from ottla.wire._pure import find_opening, pack_one

__all__ = ["find_opening", "pack_one"]
