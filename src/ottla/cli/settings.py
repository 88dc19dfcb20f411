"""Reading a node's configuration from what stands on the command line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.config.key import InvalidConfig
from ottla.config.node import NodeConfig
from ottla.config.properties import parse_properties
from ottla.errors import StartupError

AUDIT = "ottla.audit"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def parse_settings(settings: list[str]) -> dict[str, str]:
    """`KEY=VALUE` pairs of `--set`."""
    parsed: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise StartupError(f"--set {setting} is not of the form KEY=VALUE.")
        parsed[key.strip()] = value.strip()
    return parsed


def read_properties(path: Path) -> dict[str, str]:
    try:
        return parse_properties(path.read_text("utf-8"))
    except FileNotFoundError:
        raise StartupError(f"There is no file {path}.") from None
    except OSError as error:
        raise StartupError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise StartupError(f"{path} cannot be read: it is not text in UTF-8.") from None


def build_config(properties: Mapping[str, str]) -> NodeConfig:
    try:
        return NodeConfig(properties)
    except InvalidConfig as error:
        raise StartupError(str(error.message)) from None


def configure_logging(level: str, who: str = "", *, audited: bool = False) -> None:
    """`who` stands in front of what is said, where several nodes say it in one place. With `audited` the audit log is
    written at any level: a node that is quiet about itself still tells what others do to it."""
    if level.lower() not in _LEVELS:
        raise StartupError(f"--log-level {level} is none of {', '.join(_LEVELS)}.")
    handler = logging.StreamHandler()
    handler.setFormatter(
        OneLineFormatter(
            f"%(asctime)s {f'{who} ' if who else ''}%(levelname)-7s %(name)s: %(message)s", datefmt="%H:%M:%S"
        )
    )
    logging.basicConfig(level=_LEVELS[level.lower()], handlers=[handler], force=bool(who))
    if audited:
        logging.getLogger(AUDIT).setLevel(logging.INFO)


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROLS |= {0x2028: "\\u2028", 0x2029: "\\u2029"}
_CONTROLS_IN_TRACEBACKS = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\n\t"}


class OneLineFormatter(logging.Formatter):
    """What is said is one line: a name that a client has chosen cannot begin another, nor speak to the terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(_CONTROLS)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return super().formatException(ei).translate(_CONTROLS_IN_TRACEBACKS)
