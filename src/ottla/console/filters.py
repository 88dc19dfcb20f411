"""What a person types to find records, as a test of one record. Pure; it runs where the records are read.

    lamp                    the key or the value contains it, in any case
    "two words"             the same, with a space in it
    key:lamp  value:lamp    only there; header:name, header:name=value
    partition:2  offset:17
    value.amount>10         a field of a JSON or Avro value (or key), with = != < <= > >=
    /o.*r/                  a regular expression (RE2: its time grows with the text, and no further)
    -lamp                   not

All terms must hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ottla.console.decoding import Decoded
from ottla.schemas.avro import Json

TERMS_MAX = 20
_DIGITS_MAX = 19
_TERM = re.compile(r'-?(?:/(?:[^/\\]|\\.)*/|(?:[^\s"]|"[^"]*")+)')
_FIELD = re.compile(r"(key|value)((?:\.[^\s=!<>.]+)+)(!=|<=|>=|=|<|>)(.*)", re.DOTALL)


class BadFilter(ValueError):
    """One sentence that says what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    partition: int
    offset: int
    key: Decoded
    value: Decoded
    headers: tuple[tuple[str, bytes | None], ...]


Test = Callable[[Candidate], bool]


def parse(text: str) -> Test | None:
    """None for a filter that lets everything through. Raises `BadFilter`."""
    terms = _TERM.findall(text)
    if not terms:
        return None
    if len(terms) > TERMS_MAX:
        raise BadFilter(f"A filter has at most {TERMS_MAX} terms.")
    tests = [_negated(term[1:]) if term.startswith("-") and len(term) > 1 else _term(term) for term in terms]
    return lambda record: all(test(record) for test in tests)


def _negated(term: str) -> Test:
    test = _term(term)
    return lambda record: not test(record)


def _term(term: str) -> Test:
    if len(term) > 1 and term.startswith("/") and term.endswith("/"):
        return _expression(term[1:-1])
    if (field := _FIELD.fullmatch(term)) is not None:
        return _field(field[1], tuple(field[2][1:].split(".")), field[3], field[4].strip('"'))
    where, colon, rest = term.partition(":")
    wanted = rest.replace('"', "").casefold()
    match where if colon else "":
        case "key":
            return lambda record: wanted in record.key.text.casefold()
        case "value":
            return lambda record: wanted in record.value.text.casefold()
        case "header":
            return _header(wanted)
        case "partition" | "offset":
            if not rest.isdecimal() or len(rest) > _DIGITS_MAX:
                raise BadFilter(f"{term}: write a number behind {where}:, as in {where}:17.")
            number = int(rest)
            return lambda record: getattr(record, where) == number
    word = term.replace('"', "").casefold()
    return lambda record: word in record.key.text.casefold() or word in record.value.text.casefold()


def _header(wanted: str) -> Test:
    name, equals, value = wanted.partition("=")

    def test(record: Candidate) -> bool:
        return any(
            key.casefold() == name and (not equals or (data or b"").decode("utf-8", "replace").casefold() == value)
            for key, data in record.headers
        )

    return test


def _expression(text: str) -> Test:
    import re2

    try:
        found = re2.compile(text)
    except re2.error:
        raise BadFilter(f"/{text}/ is no regular expression that RE2 knows.") from None
    return lambda record: bool(found.search(record.key.text) or found.search(record.value.text))


def _field(where: str, path: tuple[str, ...], operator: str, wanted: str) -> Test:
    def test(record: Candidate) -> bool:
        value = (record.key if where == "key" else record.value).value
        for name in path:
            if isinstance(value, list) and name.isdecimal() and len(name) < _DIGITS_MAX and int(name) < len(value):
                value = value[int(name)]
            elif isinstance(value, dict) and name in value:
                value = value[name]
            else:
                return False
        return _compare(value, operator, wanted)

    return test


def _compare(value: Json, operator: str, wanted: str) -> bool:
    if isinstance(value, bool) or value is None:
        same = {True: "true", False: "false", None: "null"}[value] == wanted
        return same if operator == "=" else operator == "!=" and not same
    left: float | str
    right: float | str
    if isinstance(value, int | float):
        try:
            left, right = float(value), float(wanted)
        except (ValueError, OverflowError):
            return operator == "!="
    elif isinstance(value, str):
        left, right = value, wanted
    else:
        return False
    # Both are of one type here, which the checker cannot see.
    match operator:
        case "=":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right  # type: ignore[operator]
        case "<=":
            return left <= right  # type: ignore[operator]
        case ">":
            return left > right  # type: ignore[operator]
        case _:
            return left >= right  # type: ignore[operator]
