"""Which side does a room's work on every byte: its compiled `_native`, or its `_pure` where that could not be built.

Both have the same functions with the same behaviour, and the tests hold one against the other. `OTTLA_PURE=1` asks for
Python even where the compiled module is there.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType


def side(room: str) -> ModuleType:
    """`room`._native if it is there and wanted, else `room`._pure."""
    if os.environ.get("OTTLA_PURE", "") in ("", "0"):
        try:
            return import_module(f"{room}._native")
        except ImportError:
            pass
    return import_module(f"{room}._pure")
