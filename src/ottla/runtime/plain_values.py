"""Values as bytes and back, for two processes of one node: JSON, with tags for what JSON does not know.

Not pickle, which lets whoever writes it run whatever code it likes in whoever reads it. A worker handles bytes of
clients, so what it says is believed to be values and nothing else: `read_values` makes numbers, texts, bytes,
collections, enum members, exceptions, and value classes (dataclasses and named tuples) of modules that are loaded
already. Only what the node says to a worker of its own (`read_order`) may name functions, and have them imported.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any


class NotPlain(Exception):
    """Something that is not, or does not say, a plain value."""


def write_plain(value: object) -> bytes:
    return json.dumps(_tagged(value), separators=(",", ":")).encode()


def read_values(data: bytes) -> Any:
    """From a process that is not trusted. Raises `NotPlain`."""
    return _read(data, trusted=False)


def read_order(data: bytes) -> Any:
    """From the process that started this one."""
    return _read(data, trusted=True)


def _read(data: bytes, *, trusted: bool) -> Any:
    try:
        return _untagged(json.loads(data), trusted)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise NotPlain(f"not a value: {error}") from None


def _tagged(value: object) -> object:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Enum):
        return ["enum", _name_of(type(value)), _tagged(value.value)]
    if isinstance(value, bytes):
        return ["bytes", b64encode(value).decode()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ["value", _name_of(type(value)), [[field, _tagged(getattr(value, field))] for field in value._fields]]
    if isinstance(value, list | tuple):
        return ["list" if isinstance(value, list) else "tuple", [_tagged(each) for each in value]]
    if isinstance(value, dict):
        return ["dict", [[_tagged(key), _tagged(each)] for key, each in value.items()]]
    if isinstance(value, BaseException):
        return ["error", _name_of(type(value)), [_tagged(each) for each in value.args]]
    if isinstance(value, partial):
        return ["call", _tagged(value.func), [_tagged(each) for each in value.args]]
    if isinstance(value, FunctionType):
        return ["function", _name_of(value)]
    if is_dataclass(value) and not isinstance(value, type):
        kept = [[field.name, _tagged(getattr(value, field.name))] for field in fields(value)]
        return ["value", _name_of(type(value)), kept]
    if not getattr(value, "__dict__", None):
        return ["object", _name_of(type(value))]
    raise NotPlain(f"{type(value).__name__} is not a plain value")


def _untagged(form: Any, trusted: bool) -> Any:
    if not isinstance(form, list):
        return form
    kind = form[0]
    if kind == "bytes":
        return b64decode(form[1])
    if kind == "list":
        return [_untagged(each, trusted) for each in form[1]]
    if kind == "tuple":
        return tuple(_untagged(each, trusted) for each in form[1])
    if kind == "dict":
        return {_untagged(key, trusted): _untagged(each, trusted) for key, each in form[1]}
    if kind in ("enum", "value", "error"):
        return _value(kind, _find(form[1], trusted), form[2], trusted)
    if trusted and kind == "function":
        return _find(form[1], trusted)
    if trusted and kind == "object":
        return _find(form[1], trusted)()
    if trusted and kind == "call":
        return partial(_untagged(form[1], trusted), *(_untagged(each, trusted) for each in form[2]))
    raise NotPlain(f"{kind!r} is no kind of value")


def _value(kind: str, found: Any, content: Any, trusted: bool) -> Any:
    if not isinstance(found, type):
        raise NotPlain("only classes make values")
    if kind == "enum" and issubclass(found, Enum):
        return found(_untagged(content, trusted))
    if kind == "error" and issubclass(found, Exception):
        return found(*(_untagged(each, trusted) for each in content))
    if kind == "value" and (is_dataclass(found) or (issubclass(found, tuple) and hasattr(found, "_fields"))):
        return found(**{field: _untagged(each, trusted) for field, each in content})
    raise NotPlain(f"{found.__name__} is no {kind}")


def _name_of(thing: Any) -> str:
    if "<" in thing.__qualname__:
        raise NotPlain(f"{thing.__qualname__} cannot be found by its name")
    return f"{thing.__module__}:{thing.__qualname__}"


def _find(name: str, trusted: bool) -> Any:
    module_name, _, path = name.partition(":")
    found: Any = import_module(module_name) if trusted else sys.modules[module_name]
    for part in path.split("."):
        found = getattr(found, part)
    return found
