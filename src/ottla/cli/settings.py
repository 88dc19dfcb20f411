"""Reading a node's configuration from what stands on the command line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from ottla.config.key import InvalidConfig
from ottla.config.node import NodeConfig
from ottla.config.properties import parse_properties
from ottla.errors import StartupError

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


def configure_logging(level: str, who: str = "") -> None:
    """`who` stands in front of what is said, where several nodes say it in one place."""
    if level.lower() not in _LEVELS:
        raise StartupError(f"--log-level {level} is none of {', '.join(_LEVELS)}.")
    logging.basicConfig(
        level=_LEVELS[level.lower()],
        format=f"%(asctime)s {f'{who} ' if who else ''}%(levelname)-7s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        force=bool(who),
    )
