"""One configuration key: what a row of the table holds, and how its text becomes a value and text again.

Values arrive as text, from a properties file or from a request, and are parsed the way Kafka parses them: the same
trimming, the same numbers, the same refusals. A value of type CLASS or PASSWORD stays text: no value names code that
is loaded.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError

ConfigValue = bool | int | float | str | tuple[str, ...] | None


class InvalidConfig(KafkaError):
    """A value that its key does not allow (INVALID_CONFIG); the message names the key and is fit for a terminal."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_CONFIG) -> None:
        super().__init__(code, message)


def invalid_value(name: str, value: object, reason: str) -> InvalidConfig:
    """Kafka's sentence for a value that does not fit its key."""
    return InvalidConfig(f"Invalid value {value} for configuration {name}: {reason}")


class Type(IntEnum):
    """The types of values, with their numbers in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(IntEnum):
    """What a key configures. The same name may be a key of two scopes."""

    BROKER = 0
    TOPIC = 1
    GROUP = 2
    CLIENT_METRICS = 3
    USER_QUOTA = 4
    IP_QUOTA = 5


class Update(IntEnum):
    """Whether a broker's key can be changed while it runs, and where."""

    READ_ONLY = 0
    PER_BROKER = 1
    """For one broker only: the value would make no sense for all."""
    CLUSTER_WIDE = 2
    """For one broker or, as a default, for all."""


class Importance(IntEnum):
    HIGH = 0
    MEDIUM = 1
    LOW = 2


class Rule:
    """What a parsed value must satisfy; its text is a few words for the reference page.

    Rules are plain classes, not dataclasses, because all of them are made when a scope's rows are imported.
    """

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        """Raise `InvalidConfig` if the value of the key `name` breaks the rule."""
        raise NotImplementedError


class ConfigKey(NamedTuple):
    """A row of the table. `default` is text, or None where an unset key has no value."""

    name: str
    type: Type
    default: str | None
    documentation: str
    rule: Rule | None = None
    importance: Importance = Importance.MEDIUM
    update: Update = Update.READ_ONLY
    required: bool = False
    internal: bool = False
    """Understood, but shown only where it is set."""
    dynamic_only: bool = False
    """A broker's key that has no place in a properties file and no default that is shown."""

    @property
    def sensitive(self) -> bool:
        return self.type is Type.PASSWORD


class Range(Rule):
    """A number of at least `least` and, unless that is None, at most `most`."""

    __slots__ = ("least", "most")

    def __init__(self, least: int, most: float | None = None) -> None:
        self.least = least
        self.most = most

    def check(self, name: str, value: ConfigValue) -> None:
        assert isinstance(value, int | float)
        if value < self.least:
            raise invalid_value(name, format_number(value), f"Value must be at least {self.least}")
        if self.most is not None and value > self.most:
            raise invalid_value(name, format_number(value), f"Value must be no more than {self.most}")

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least}"
        return f"{self.least} to {self.most}"


class OneOf(Rule):
    """One of a few words."""

    __slots__ = ("ignore_case", "words")

    def __init__(self, words: tuple[str, ...], *, ignore_case: bool = False) -> None:
        self.words = words
        self.ignore_case = ignore_case

    def check(self, name: str, value: ConfigValue) -> None:
        assert isinstance(value, str)
        if self.ignore_case:
            if value.upper() not in self.words:
                raise invalid_value(name, value, f"String must be one of (case insensitive): {', '.join(self.words)}")
        elif value not in self.words:
            raise invalid_value(name, value, f"String must be one of: {', '.join(self.words)}")

    def __str__(self) -> str:
        return ", ".join(self.words)


class ListOf(Rule):
    """A list without empty entries, of the given words or, when there are none, of any; repetitions are dropped."""

    __slots__ = ("may_be_empty", "words")

    def __init__(self, words: tuple[str, ...] = (), *, may_be_empty: bool = True) -> None:
        self.words = words
        self.may_be_empty = may_be_empty

    def check(self, name: str, value: ConfigValue) -> None:
        assert isinstance(value, tuple)
        if not value and not self.may_be_empty:
            words = f"[{', '.join(self.words)}]" if self.words else "any non-empty value"
            raise InvalidConfig(f"Configuration '{name}' must not be empty. Valid values include: {words}")
        for entry in value:
            if not entry:
                raise InvalidConfig(f"Configuration '{name}' values must not be empty.")
            if self.words and entry not in self.words:
                raise invalid_value(name, entry, f"String must be one of: {', '.join(self.words)}")

    def __str__(self) -> str:
        if not self.words:
            return "" if self.may_be_empty else "not empty"
        return f"{'any' if self.may_be_empty else 'one or more'} of {', '.join(self.words)}"


class NonEmpty(Rule):
    """A string that says something."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        if value == "":
            raise invalid_value(name, "", "String must be non-empty")

    def __str__(self) -> str:
        return "not empty"


class GzipLevel(Rule):
    """gzip's levels have a gap, which no range describes."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        assert isinstance(value, int)
        if value != -1 and not 1 <= value <= 9:
            raise invalid_value(name, value, "Value must be between 1 and 9 or equal to -1")

    def __str__(self) -> str:
        return "1 to 9, or -1"


class ThrottledReplicas(Rule):
    """`*`, or replicas as partition:broker."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        assert isinstance(value, tuple)
        if value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", replica) for replica in value):
            return
        raise invalid_value(
            name,
            f"[{', '.join(value)}]",
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )

    def __str__(self) -> str:
        return "`*`, or a list of partition:broker"


class ShareOffsetReset(Rule):
    """Where a share group starts: one end of the log, or an ISO-8601 duration back from now."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        assert isinstance(value, str)
        if value.lower() in ("latest", "earliest"):
            return
        word, colon, duration = value.partition(":")
        if word.lower() == "by_duration" and colon and _is_duration(duration):
            return
        raise invalid_value(
            name,
            value,
            f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' "
            "or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        )

    def __str__(self) -> str:
        return "latest, earliest, by_duration:PnDTnHnMn.nS"


def _is_duration(text: str) -> bool:
    pattern = r"P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+([.,][0-9]{0,9})?S)?)?"
    return re.fullmatch(pattern, text, re.IGNORECASE) is not None


_BITS = {Type.SHORT: 15, Type.INT: 31, Type.LONG: 63}
_DOUBLE = r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)"


def parse_value(key: ConfigKey, text: str) -> ConfigValue:
    """The value that `text` stands for; `InvalidConfig` if it has the wrong type or breaks the key's rule."""
    value = _parse_type(key, text)
    if key.rule is not None:
        if isinstance(key.rule, ListOf):
            assert isinstance(value, tuple)
            value = tuple(dict.fromkeys(value))
        key.rule.check(key.name, value)
    return value


def _parse_type(key: ConfigKey, text: str) -> ConfigValue:
    trimmed = text.strip()
    match key.type:
        case Type.BOOLEAN:
            word = trimmed.lower()
            if word not in ("true", "false"):
                raise invalid_value(key.name, text, "Expected value to be either true or false")
            return word == "true"
        case Type.INT | Type.LONG | Type.SHORT:
            bits = _BITS[key.type]
            if re.fullmatch(r"[+-]?[0-9]{1,40}", trimmed):
                number = int(trimmed)
                if -(1 << bits) <= number < 1 << bits:
                    return number
            raise invalid_value(key.name, text, f"Not a number of type {key.type.name}")
        case Type.DOUBLE:
            if not re.fullmatch(_DOUBLE, trimmed):
                raise invalid_value(key.name, text, "Not a number of type DOUBLE")
            return float(trimmed if trimmed.endswith(("NaN", "y")) else trimmed.rstrip("fFdD"))
        case Type.LIST:
            return tuple(entry.strip() for entry in trimmed.split(",")) if trimmed else ()
        case _:
            return trimmed


def default_value(key: ConfigKey) -> ConfigValue:
    return None if key.default is None else _parse_type(key, key.default)


def format_value(value: ConfigValue) -> str | None:
    """The text of a value as Kafka's tools show it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ",".join(value)
    return format_number(value)


def format_number(value: float) -> str:
    """As Java writes booleans, integers and doubles (`true`, `42`, `0.5`, `2.147483647E9`)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:f}"
    # Python and Java both print the shortest digits that read back as the same number; only the layout differs.
    digits, _, exponent = f"{value!r}e0".partition("e")
    sign = "-" if digits.startswith("-") else ""
    whole, _, fraction = digits.lstrip("-").partition(".")
    power = int(exponent.removesuffix("e0") or 0) + len(whole) - 1
    mantissa = (whole + fraction).lstrip("0")
    power -= len(whole + fraction) - len(mantissa)
    mantissa = mantissa.rstrip("0") or "0"
    return f"{sign}{mantissa[0]}.{mantissa[1:] or '0'}E{power}"
