"""The node's loggers as a config resource: kafka-configs reads and sets their levels while the node runs."""

from __future__ import annotations

import logging

ROOT = "root"
_TO_KAFKA = {
    logging.CRITICAL: "FATAL",
    logging.ERROR: "ERROR",
    logging.WARNING: "WARN",
    logging.INFO: "INFO",
    logging.DEBUG: "DEBUG",
}
_FROM_KAFKA = {name: level for level, name in _TO_KAFKA.items()} | {"TRACE": logging.DEBUG}
PREFIX = "ottla"
REQUESTS = "kafka.request.logger"
"""Kafka's name for the logger that tells of every request (`request_tracing`)."""

LEVELS = tuple(_FROM_KAFKA)

# As in Kafka's own log4j2.yaml: who wants everything of the rest does not want this.
logging.getLogger(REQUESTS).setLevel(logging.WARNING)


def logger_levels() -> dict[str, str]:
    """The level in force of each of our loggers, by name, the root's first."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.split(".")[0] == PREFIX or name == REQUESTS)
    levels = {ROOT: _name(logging.root.level)}
    levels.update((name, _name(logging.getLogger(name).getEffectiveLevel())) for name in names)
    return levels


def set_level(name: str, level: str | None) -> None:
    """Set a logger's level, or with None leave it to its parent."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else _FROM_KAFKA[level])


def requests_are_traced() -> bool:
    return logging.getLogger(REQUESTS).isEnabledFor(logging.DEBUG)


def _name(level: int) -> str:
    at_least = [known for known in _TO_KAFKA if known <= level]
    return _TO_KAFKA[max(at_least)] if at_least else "DEBUG"
