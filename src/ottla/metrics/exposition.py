"""Prometheus' text format (version 0.0.4): names, labels and numbers to lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import isinf, isnan

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NOT_IN_A_NAME = re.compile("[^a-zA-Z0-9_]")


def metric_name(text: str) -> str:
    """`text` with everything replaced that a name may not hold."""
    name = _NOT_IN_A_NAME.sub("_", text)
    return f"_{name}" if not name or name[0].isdigit() else name


def header(name: str, kind: str, help_text: str) -> str:
    escaped = help_text.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n"


def line(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    pairs = ",".join(f'{label}="{escape(text)}"' for label, text in labels)
    return f"{name}{{{pairs}}} {number(value)}\n" if pairs else f"{name} {number(value)}\n"


def pairs(names: Sequence[str], values: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(names, values, strict=True))


def escape(text: str) -> str:
    """A label's value; what cannot be encoded is replaced."""
    if not text.isprintable() or '"' in text or "\\" in text:
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        return text.encode("utf-8", "replace").decode()
    return text


def number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
