"""A Protobuf schema read from its text, or from the form in which Confluent's Python serializer registers one: a
FileDescriptorProto in base64.

Services, options and extensions mean nothing to a reader and are skipped. The text comes from anybody, so nesting is
bounded, and what does not follow the grammar is `InvalidSchema`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from ottla.schemas import protobuf_descriptor
from ottla.schemas.avro import InvalidSchema
from ottla.schemas.protobuf_types import FIELD_NUMBER_MAX, LEVELS_MAX, Field, File, Message, inside

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\.?[A-Za-z_][\w.]*|[-+]?[0-9][\w.+-]*|[{}\[\]()<>=;,:+-])""",
    re.DOTALL,
)


def parse(text: str) -> File:
    """Raises `InvalidSchema`."""
    serialized = _serialized(text)
    file = protobuf_descriptor.read(serialized) if serialized is not None else _Parser(text).file()
    if not file.messages and not file.enums:
        raise InvalidSchema("A Protobuf schema defines a message or an enum at least.")
    return file


def _serialized(text: str) -> bytes | None:
    stripped = text.strip()
    if not stripped or not re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", stripped):
        return None
    try:
        return base64.b64decode(stripped, validate=True)
    except binascii.Error:
        return None


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(self._cut(text))
        self._at = 0
        self._file = File()

    @staticmethod
    def _cut(text: str) -> Iterator[str]:
        position = 0
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise InvalidSchema(f"The schema cannot be read from {text[position : position + 20]!r} on.")
            if found[1] is not None:
                yield found[1]
            position = found.end()

    def file(self) -> File:
        while self._at < len(self._tokens):
            match self._next():
                case "package":
                    self._file.package = self._name()
                    self._expect(";")
                case "message":
                    self._message("", 0)
                case "enum":
                    self._enum("")
                case "syntax":
                    self._expect("=")
                    self._file.syntax = self._next().strip("'\"")
                    self._expect(";")
                case "edition":
                    self._file.syntax = "editions"
                    self._skip_statement()
                case "import" | "option":
                    self._skip_statement()
                case "service" | "extend":
                    self._name()
                    self._skip_block()
                case ";":
                    pass
                case other:
                    raise InvalidSchema(f"{other[:50]!r} begins nothing that a Protobuf schema may hold.")
        return self._file

    def _message(self, scope: str, level: int) -> None:
        if level > LEVELS_MAX:
            raise InvalidSchema(f"The schema has more than {LEVELS_MAX} levels.")
        name = inside(scope, self._simple_name())
        self._define(name)
        message = self._file.messages[name] = Message(name)
        if scope:
            self._file.messages[scope].inner.append(name)
        self._expect("{")
        self._body(message, level)

    def _body(self, message: Message, level: int, oneof: str | None = None) -> None:
        while (token := self._next()) != "}":
            following = self._peek()
            if token == ";":
                continue
            if token == "message" and oneof is None and self._peek(1) == "{":
                self._message(message.name, level + 1)
            elif token == "enum" and oneof is None and self._peek(1) == "{":
                self._enum(message.name)
            elif token == "oneof" and oneof is None and self._peek(1) == "{":
                name = self._simple_name()
                self._expect("{")
                self._body(message, level + 1, name)
            elif token == "extend" and self._peek(1) == "{":
                self._name()
                self._skip_block()
            elif (
                token in ("option", "reserved", "extensions") and following != "=" and self._peek(1) != "="
            ) or token == "option":
                self._skip_statement()
            elif token == "map" and following == "<":
                self._map(message)
            else:
                self._field(message, token, oneof, level)

    def _field(self, message: Message, first: str, oneof: str | None, level: int) -> None:
        label, kind = "", first
        if first in ("optional", "required", "repeated") and self._peek() != "=" and self._peek(1) != "=":
            label, kind = first, self._next()
        if kind == "group" and self._peek(1) == "=":
            self._group(message, label, level)
            return
        if not re.fullmatch(r"\.?[A-Za-z_][\w.]*", kind):
            raise InvalidSchema(f"{kind[:50]!r} is no type.")
        name, number = self._simple_name(), self._number()
        options = self._end_field()
        found = Field(
            name=name,
            number=number,
            label=label,
            type=kind,
            oneof=oneof,
            is_explicit=label == "optional" or oneof is not None or self._file.syntax != "proto3",
            is_packed=options.get("packed", "true" if self._file.syntax != "proto2" else "false") == "true",
        )
        self._add(message, found)

    def _group(self, message: Message, label: str, level: int) -> None:
        name = self._simple_name()
        number = self._number()
        self._add(message, Field(name=name.lower(), number=number, label=label, type=name, is_group=True))
        inner = inside(message.name, name)
        self._define(inner)
        made = self._file.messages[inner] = Message(inner)
        message.inner.append(inner)
        self._expect("{")
        self._body(made, level + 1)

    def _map(self, message: Message) -> None:
        self._expect("<")
        key = self._name()
        self._expect(",")
        value = self._name()
        self._expect(">")
        name, number = self._simple_name(), self._number()
        self._add(message, Field(name=name, number=number, label="repeated", type="map", key=key, value=value))
        self._end_field()

    def _enum(self, scope: str) -> None:
        name = inside(scope, self._simple_name())
        self._define(name)
        values = self._file.enums[name] = {}
        self._expect("{")
        while (token := self._next()) != "}":
            if token == ";":
                continue
            if token in ("option", "reserved") and self._peek() != "=":
                self._skip_statement()
                continue
            self._expect("=")
            values[token] = self._integer()
            self._end_field()

    def _define(self, name: str) -> None:
        if name in self._file.messages or name in self._file.enums:
            raise InvalidSchema(f"{name} is defined twice.")

    def _add(self, message: Message, found: Field) -> None:
        if found.number in message.fields:
            raise InvalidSchema(f"{message.name} has two fields of the number {found.number}.")
        message.fields[found.number] = found

    # Tokens.

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise InvalidSchema("The schema ends too soon.")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, wanted: str) -> None:
        if (found := self._next()) != wanted:
            raise InvalidSchema(f"{found[:50]!r} stands where {wanted!r} should.")

    def _name(self) -> str:
        name = self._next()
        if not re.fullmatch(r"\.?[A-Za-z_][\w.]*", name):
            raise InvalidSchema(f"{name[:50]!r} is no name.")
        return name

    def _simple_name(self) -> str:
        name = self._name()
        if "." in name:
            raise InvalidSchema(f"{name[:50]!r} is no name of something that is defined here.")
        return name

    def _number(self) -> int:
        self._expect("=")
        number = self._integer()
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise InvalidSchema(f"{number} is no number for a field.")
        return number

    def _integer(self) -> int:
        text = self._next()
        if text in "+-":
            text += self._next()
        try:
            return int(text, 8 if re.fullmatch(r"[-+]?0[0-7]+", text) else 0)
        except ValueError:
            raise InvalidSchema(f"{text[:50]!r} stands where a number should.") from None

    def _end_field(self) -> dict[str, str]:
        """The field's options that are a name and a word."""
        options: dict[str, str] = {}
        if self._peek() == "[":
            began = self._at + 1
            self._skip_balanced("[", "]")
            inner = self._tokens[began : self._at - 1]
            options = {inner[at - 1]: inner[at + 1] for at in range(1, len(inner) - 1) if inner[at] == "="}
        self._expect(";")
        return options

    def _skip_statement(self) -> None:
        while (token := self._next()) != ";":
            if token == "{":
                self._at -= 1
                self._skip_block()

    def _skip_block(self) -> None:
        self._skip_balanced("{", "}")

    def _skip_balanced(self, opening: str, closing: str) -> None:
        self._expect(opening)
        depth = 1
        while depth:
            token = self._next()
            depth += (token == opening) - (token == closing)
