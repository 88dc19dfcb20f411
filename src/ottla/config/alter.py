"""Changes of stored configs: IncrementalAlterConfigs as a pure function, and what it refuses before anything is read.

The broker checks a request with `check_changes`; whoever holds the stored configs (the controller, or a broker that
tries out a change to its own) gets the new ones from `apply_changes` and validates them as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.config.key import InvalidConfig, Scope, Type
from ottla.config.table import lookup
from ottla.errors import ErrorCode, KafkaError


class AlterOp(IntEnum):
    """The operations of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    name: str
    op: int
    value: str | None


def check_changes(changes: Sequence[Change]) -> None:
    """Refuse what no resource allows: a key twice, no value where one is needed, an operation that does not exist."""
    if len({change.name for change in changes}) < len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    without_value = [change.name for change in changes if change.op != AlterOp.DELETE and change.value is None]
    if without_value:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without_value)}")
    for change in changes:
        if change.op not in AlterOp.__members__.values():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.op}")


def apply_changes(scope: Scope, current: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """The stored configs of a resource after `changes`, not yet validated."""
    check_changes(changes)
    result = dict(current)
    for name, op, value in changes:
        if op == AlterOp.DELETE:
            result.pop(name, None)
            continue
        assert value is not None  # check_changes turned these away.
        if op == AlterOp.SET:
            result[name] = value
            continue
        _require_list(scope, name, AlterOp(op))
        entries = _entries(scope, result.get(name), name)
        operands = value.split(",")
        if op == AlterOp.APPEND:
            entries += [entry for entry in dict.fromkeys(operands) if entry not in entries]
        else:
            for operand in operands:
                if operand in entries:
                    entries.remove(operand)
        result[name] = ",".join(entries)
    return result


def _require_list(scope: Scope, name: str, op: AlterOp) -> None:
    key = lookup(name, scope)
    # Kafka knows no schema of client metrics where it splits lists, so that their lists are only ever set whole.
    if key is not None and key.type is Type.LIST and scope is not Scope.CLIENT_METRICS:
        return
    if scope is Scope.BROKER:
        if key is None or key.dynamic_only:
            raise InvalidConfig(f"Unknown config name: {name}")
        raise InvalidConfig(f"Config value {op.name.lower()} is not allowed for config key: {name}")
    raise InvalidConfig(f"Can't {op.name} to key {name} because its type is not LIST.")


def _entries(scope: Scope, text: str | None, name: str) -> list[str]:
    """The entries of a list before the change: those stored, or the key's default ones."""
    if text is None:
        key = lookup(name, scope)
        assert key is not None
        text = key.default or ""
    return [entry for entry in text.split(",") if entry]
