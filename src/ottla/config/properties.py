"""Java's `.properties` format, both ways: `server.properties`, `meta.properties` and the like.

The reader accepts whatever `java.util.Properties.load` accepts and gives the same pairs: comments, `=`, `:` or blanks
between key and value, lines that go on after a backslash, and escapes. The writer's output reads back as the same
pairs, here and in Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ottla.config.key import InvalidConfig

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = r"(\r\n|\r|\n)"
_SURROGATES = "[\ud800-\udbff][\udc00-\udfff]"


def parse_properties(text: str) -> dict[str, str]:
    """The pairs in `text`; where a key is set twice the last one counts."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones, joined where a backslash says so.

    Java's reader has its moods, which are kept: a line that starts with a bare backslash may still turn out to be a
    comment, and a backslash that ends the whole text yields a line even if nothing stands before it.
    """
    joined = ""
    pieces = re.split(_LINE_END, text)  # Lines at even places, with what ended them in between.
    for place in range(0, len(pieces), 2):
        line = pieces[place].lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2 == 0:
            yield joined + line
            joined = ""
            continue
        joined += line[:-1]
        is_last = place + 1 == len(pieces) or (place + 3 == len(pieces) and pieces[-1] == "" and pieces[-2] != "\r\n")
        if is_last:
            yield joined
            return
    if joined:
        yield joined


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped: the key ends at the first separator that no backslash hides."""
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_BLANKS)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            if char != "\\":
                out.append(char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            digits = text[position : position + 4]
            if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                raise InvalidConfig(f"Malformed \\uxxxx encoding in a properties file: \\u{digits}")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Java counts in UTF-16, so a character beyond the first plane is escaped as two halves.
    return re.sub(_SURROGATES, lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), "".join(out))


def format_properties(properties: Mapping[str, str], comments: tuple[str, ...] = ()) -> str:
    """The text of a file with these pairs, in their order, ASCII only."""
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in properties.items()]
    return "".join(f"{line}\n" for line in lines)


_TO_ESCAPE = {
    "\t": "\\t",
    "\n": "\\n",
    "\r": "\\r",
    "\f": "\\f",
    "\\": "\\\\",
    "=": "\\=",
    ":": "\\:",
    "#": "\\#",
    "!": "\\!",
}


def _escape(text: str, *, key: bool) -> str:
    out: list[str] = []
    for position, char in enumerate(text):
        if escaped := _TO_ESCAPE.get(char):
            out.append(escaped)
        elif char == " " and (key or position == 0):
            out.append("\\ ")
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            out.extend(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    return "".join(out)
