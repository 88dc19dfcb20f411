"""What a process logs to standard error: one line each, for people on a terminal, as JSON for whoever collects it.

    12:00:00 INFO    ottla.broker.node: serving
    {"time":"2026-01-31T12:00:00.000Z","level":"INFO","logger":"ottla.broker.node","message":"serving"}

Which of the two is decided by `OTTLA_LOG_FORMAT` (text or json), which processes inherit, and else by whether standard
error is a terminal. A record may carry `fields`, a mapping, which JSON gets one by one, and people behind the message.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any

VARIABLE = "OTTLA_LOG_FORMAT"
TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROLS |= {0x2028: "\\u2028", 0x2029: "\\u2029"}
_CONTROLS_IN_TRACEBACKS = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\n\t"}


def log_format() -> str:
    """The format that was asked for, or the one that fits."""
    wanted = os.environ.get(VARIABLE, "").strip().lower()
    if wanted in FORMATS:
        return wanted
    return TEXT if sys.stderr.isatty() else JSON


def log_handler(who: str = "") -> logging.Handler:
    """Writes to standard error. `who` is told with every line, where several processes write to one place."""
    handler = logging.StreamHandler()
    if log_format() == JSON:
        handler.setFormatter(JsonFormatter(who))
    else:
        name = f"{who} " if who else ""
        handler.setFormatter(
            OneLineFormatter(f"%(asctime)s {name}%(levelname)-7s %(name)s: %(message)s", datefmt="%H:%M:%S")
        )
    return handler


class OneLineFormatter(logging.Formatter):
    """What is said is one line: a name that a client has chosen cannot begin another, nor speak to the terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None)
        if fields:
            import json

            record.message += "".join(f" {name}={json.dumps(value, default=str)}" for name, value in fields.items())
        record.message = record.message.translate(_CONTROLS)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return super().formatException(ei).translate(_CONTROLS_IN_TRACEBACKS)


class JsonFormatter(logging.Formatter):
    """One object a line, in ASCII: whatever a client has chosen stands in a string."""

    def __init__(self, who: str = "") -> None:
        super().__init__()
        self._who = who

    def format(self, record: logging.LogRecord) -> str:
        import json

        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        said: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._who:
            said["node"] = self._who
        said |= getattr(record, "fields", {})
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            said["stack"] = record.stack_info
        return json.dumps(said, separators=(",", ":"), default=str)
