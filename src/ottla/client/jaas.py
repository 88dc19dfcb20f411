"""`sasl.jaas.config`: Java's way to name a login module and to hand it options, in one line of text.

org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""")
_FLAGS = ("required", "requisite", "sufficient", "optional")


class Jaas(NamedTuple):
    module: str
    """The class's name without its package, such as `PlainLoginModule`."""
    options: dict[str, str]


def parse_jaas(text: str) -> Jaas:
    """The one entry in `text`. Raises `ValueError`, without repeating the text: it holds a password."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";":
        raise ValueError('expected: Module required name="value" …;')
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if len(rest) % 3:
        raise ValueError('options are pairs: name="value"')
    for place in range(0, len(rest), 3):
        name, equals, value = rest[place : place + 3]
        if equals != "=":
            raise ValueError('options are pairs: name="value"')
        options[name] = value
    return Jaas(tokens[0].rpartition(".")[2], options)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError("a quotation mark is not closed")
        double, single, sign, word = found.groups()
        quoted = double if double is not None else single
        tokens.append(sign or word if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        position = found.end()
    return tokens
