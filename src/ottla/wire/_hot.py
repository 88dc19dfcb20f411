"""What finds and answers the commonest produce request, compiled where it can be (`ottla.compiled`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.compiled import side

if TYPE_CHECKING:
    from ottla.wire._pure import find_opening, pack_one
else:
    _side = side("ottla.wire")
    find_opening, pack_one = _side.find_opening, _side.pack_one

__all__ = ["find_opening", "pack_one"]
