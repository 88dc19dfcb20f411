"""What a broker checks of a config change before the controller decides about it.

Only the broker knows its own properties file, so it alone can tell whether a dynamic key fits it; and the levels of its
loggers never leave it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.api.describe_configs import require_this_node
from ottla.broker.monitoring.logger_levels import LEVELS, ROOT, logger_levels, set_level
from ottla.broker.services import Services
from ottla.config.alter import AlterOp, Change, apply_changes, check_changes
from ottla.config.dynamic import validate_broker
from ottla.config.key import Scope
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import RESOURCE_BROKER, RESOURCE_BROKER_LOGGER


def check_incremental(services: Services, kind: int, name: str, changes: Sequence[Change], *, dry: bool) -> bool:
    """Is there anything left for the controller to decide? Raises `KafkaError` if not even that."""
    check_changes(changes)
    if kind == RESOURCE_BROKER:
        current = services.config.cluster
        if name:
            require_this_node(services, name)
            current = services.config.broker
        wanted = apply_changes(Scope.BROKER, current, changes)
        config = validate_broker(services.config, wanted, per_broker=bool(name))
        if services.doors is not None:
            services.doors.check(config)
    elif kind == RESOURCE_BROKER_LOGGER:
        require_this_node(services, name)
        _change_loggers(changes, dry=dry)
        services.on_logger_levels()
        return False
    return True


def check_whole(services: Services, kind: int, name: str, configs: Sequence[tuple[str, str | None]]) -> None:
    """The same for the older AlterConfigs, which replaces all configs of a resource at once."""
    names = [key for key, _ in configs]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    without_value = [key for key, value in configs if value is None]
    if without_value:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without_value)}")
    if kind == RESOURCE_BROKER:
        if name:
            require_this_node(services, name)
        wanted = {key: value for key, value in configs if value is not None}
        config = validate_broker(services.config, wanted, per_broker=bool(name))
        if services.doors is not None:
            services.doors.check(config)
    elif kind == RESOURCE_BROKER_LOGGER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Logger levels are altered by IncrementalAlterConfigs alone")


def _change_loggers(changes: Sequence[Change], *, dry: bool) -> None:
    known = logger_levels()
    for name, op, value in changes:
        if op not in (AlterOp.SET, AlterOp.DELETE):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{AlterOp(op).name} operation is not allowed for the BROKER_LOGGER resource"
            )
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if op == AlterOp.DELETE and name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        if op == AlterOp.SET and value not in LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {value} as it is not a supported log level. Valid log levels "
                f"are {', '.join(LEVELS)}",
            )
    if not dry:
        for name, op, value in changes:
            set_level(name, value if op == AlterOp.SET else None)
