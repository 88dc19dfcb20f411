"""Java's login configuration, as `sasl.jaas.config` holds it: one login module, its flag and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="broker" password="secret" user_alice="hers";

Pure text to values. Nothing that is named here is loaded: the module's class only says which mechanism is meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s=;"']+)|([=;]))""")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}

USER_PREFIX = "user_"


class BadLoginConfig(Exception):
    """The text is no login configuration. The message says what is wrong with it, and repeats nothing secret."""


class LoginModule(NamedTuple):
    name: str
    """The class, with its package."""
    options: Mapping[str, str]

    @property
    def users(self) -> dict[str, str]:
        """The passwords of PLAIN's users: every option `user_NAME`."""
        return {
            option.removeprefix(USER_PREFIX): value
            for option, value in self.options.items()
            if option.startswith(USER_PREFIX)
        }


def parse_login_module(text: str) -> LoginModule:
    """The one login module that `text` describes. Raises `BadLoginConfig`."""
    tokens = _tokens(text)
    if len(tokens) < 2 or isinstance(tokens[0], _Mark):
        raise BadLoginConfig("it must begin with a login module and its control flag")
    name, flag, *rest = tokens
    if flag.lower() not in _FLAGS:
        raise BadLoginConfig(f"the control flag of {name} must be one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    position = 0
    while position < len(rest) and rest[position] is not _END:
        if position + 2 >= len(rest) or rest[position + 1] is not _EQUALS or isinstance(rest[position + 2], _Mark):
            raise BadLoginConfig(f"option {len(options) + 1} of {name} is not of the form key=value")
        options[rest[position]] = rest[position + 2]
        position += 3
    if position >= len(rest):
        raise BadLoginConfig("the login module must end with a semicolon")
    if position + 1 < len(rest):
        raise BadLoginConfig("there must be one login module, not several")
    return LoginModule(name, options)


class _Mark(str):
    """A sign of the syntax, which no quoted text can be mistaken for."""

    __slots__ = ()


_EQUALS, _END = _Mark("="), _Mark(";")


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise BadLoginConfig("a quotation mark is not closed")
        double, single, plain, sign = token.groups()
        if sign is not None:
            found.append(_EQUALS if sign == "=" else _END)
        elif plain is not None:
            found.append(plain)
        else:
            quoted = double if double is not None else single
            found.append(_ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), quoted))
        position = token.end()
    return found
