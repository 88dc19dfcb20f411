"""Reading a node's configuration from what stands on the command line."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.config.key import InvalidConfig
from ottla.config.node import NodeConfig
from ottla.config.properties import parse_properties
from ottla.errors import StartupError, UsageError
from ottla.runtime.logs import FORMATS, VARIABLE, log_handler

if TYPE_CHECKING:
    from pathlib import Path

AUDIT = "ottla.audit"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def parse_settings(settings: list[str]) -> dict[str, str]:
    """`KEY=VALUE` pairs of `--set`."""
    parsed: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {setting} is not of the form KEY=VALUE.")
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
        # Kafka's sentence shows a value as it is, and of an empty one nothing would be seen.
        raise StartupError(str(error.message).replace("Invalid value  for", "Invalid value '' for")) from None


def choose_log_format(name: str) -> None:
    """For this process and those that it starts."""
    if name.lower() not in FORMATS:
        raise UsageError(f"--log-format {name} is none of {', '.join(FORMATS)}.")
    os.environ[VARIABLE] = name.lower()


def configure_logging(level: str, who: str = "", *, audited: bool = False) -> None:
    """`who` stands in front of what is said, where several nodes say it in one place. With `audited` the audit log is
    written at any level: a node that is quiet about itself still tells what others do to it."""
    if level.lower() not in _LEVELS:
        raise UsageError(f"--log-level {level} is none of {', '.join(_LEVELS)}.")
    logging.basicConfig(level=_LEVELS[level.lower()], handlers=[log_handler(who)], force=bool(who))
    if audited:
        logging.getLogger(AUDIT).setLevel(logging.INFO)
