"""What is done to every record of a log that is compacted, compiled where it can be (`ottla.compiled`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.compiled import side

_side = side("ottla.records.cleaning")
NATIVE = _side.__name__.endswith("._native")
"""Is it the compiled side?"""

if TYPE_CHECKING:
    from ottla.records.cleaning._pure import SLOT_BYTES, OffsetMap
else:
    SLOT_BYTES, OffsetMap = _side.SLOT_BYTES, _side.OffsetMap

__all__ = ["NATIVE", "SLOT_BYTES", "OffsetMap"]
