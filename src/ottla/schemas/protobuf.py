"""A Protobuf schema as it matters to those who read each other's messages: messages, enums, fields by their numbers.

Read from a `.proto` text, or from the form in which Confluent's Python serializer registers one: a FileDescriptorProto
in base64. Services, options and extensions mean nothing to a reader and are skipped. The text comes from anybody, so
nesting is bounded, and what does not follow the grammar is `InvalidSchema`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.schemas.avro import InvalidSchema

LEVELS_MAX = 60
FIELD_NUMBER_MAX = (1 << 29) - 1

SCALARS = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""By their number in a FieldDescriptorProto, from 1 on; three of them are not scalars, and stand for named types."""
_NAMED = frozenset({"group", "message", "enum"})
_LABELS = {1: "optional", 2: "required", 3: "repeated"}

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\.?[A-Za-z_][\w.]*|[-+]?[0-9][\w.+-]*|[{}\[\]()<>=;,:+-])""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    number: int
    label: str
    """optional, required, repeated, or nothing."""
    type: str
    """A scalar's name, or that of a message or an enum as it was written; `map` for a map."""
    oneof: str | None = None


@dataclass(slots=True)
class Message:
    name: str
    """With the messages that it is in, without the package."""
    fields: dict[int, Field] = field(default_factory=dict)


@dataclass(slots=True)
class File:
    package: str = ""
    messages: dict[str, Message] = field(default_factory=dict)
    enums: set[str] = field(default_factory=set)

    def type_of(self, scope: str, written: str) -> str:
        """The name of the type that `written` means within the message `scope`, as the file knows it."""
        name = written.removeprefix(".")
        if self.package and name.startswith(f"{self.package}."):
            name = name.removeprefix(f"{self.package}.")
        outer = "" if written.startswith(".") else scope
        while outer:
            if (found := f"{outer}.{name}") in self.messages or found in self.enums:
                return found
            outer = outer.rpartition(".")[0]
        return name


def parse(text: str) -> File:
    """Raises `InvalidSchema`."""
    serialized = _serialized(text)
    file = _Descriptor.file(serialized) if serialized is not None else _Parser(text).file()
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
                case "syntax" | "edition" | "import" | "option":
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
        name = _inside(scope, self._simple_name())
        self._define(name)
        message = self._file.messages[name] = Message(name)
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
        name = self._simple_name()
        self._add(message, Field(name=name, number=self._number(), label=label, type=kind, oneof=oneof))
        self._end_field()

    def _group(self, message: Message, label: str, level: int) -> None:
        name = self._simple_name()
        self._add(message, Field(name=name.lower(), number=self._number(), label=label, type=name))
        inner = _inside(message.name, name)
        self._define(inner)
        made = self._file.messages[inner] = Message(inner)
        self._expect("{")
        self._body(made, level + 1)

    def _map(self, message: Message) -> None:
        self._expect("<")
        self._name()
        self._expect(",")
        self._name()
        self._expect(">")
        name = self._simple_name()
        self._add(message, Field(name=name, number=self._number(), label="repeated", type="map"))
        self._end_field()

    def _enum(self, scope: str) -> None:
        name = _inside(scope, self._simple_name())
        self._define(name)
        self._file.enums.add(name)
        self._skip_block()

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
        text = self._next()
        try:
            number = int(text, 0)
        except ValueError:
            number = 0
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise InvalidSchema(f"{text[:50]!r} is no number for a field.")
        return number

    def _end_field(self) -> None:
        if self._peek() == "[":
            self._skip_balanced("[", "]")
        self._expect(";")

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


def _inside(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


class _Descriptor:
    """FileDescriptorProto, read from its bytes."""

    @classmethod
    def file(cls, data: bytes) -> File:
        file = File()
        for number, value in _fields(data):
            if number == 2:
                file.package = _text(value)
            elif number == 4:
                cls._message(file, "", _bytes(value), 0)
            elif number == 5:
                file.enums.add(cls._name(_bytes(value)))
        return file

    @classmethod
    def _message(cls, file: File, scope: str, data: bytes, level: int) -> None:
        if level > LEVELS_MAX:
            raise InvalidSchema(f"The schema has more than {LEVELS_MAX} levels.")
        parts = list(_fields(data))
        name = _inside(scope, cls._name(data))
        oneofs = [cls._name(_bytes(value)) for number, value in parts if number == 8]
        nested = [_bytes(value) for number, value in parts if number == 3]
        maps = {f"{name}.{cls._name(each)}" for each in nested if cls._is_map_entry(each)}
        message = file.messages[name] = Message(name)
        for number, value in parts:
            if number == 2:
                found = cls._field(_bytes(value), oneofs, file.package, maps)
                message.fields[found.number] = found
            elif number == 4:
                file.enums.add(_inside(name, cls._name(_bytes(value))))
        for each in nested:
            if not cls._is_map_entry(each):
                cls._message(file, name, each, level + 1)

    @staticmethod
    def _field(data: bytes, oneofs: list[str], package: str, maps: set[str]) -> Field:
        found = dict(_fields(data))
        number, kind = _int(found.get(3, 0)), _int(found.get(5, 0))
        if not 1 <= number <= FIELD_NUMBER_MAX or not 1 <= kind <= len(SCALARS):
            raise InvalidSchema("The descriptor holds a field without a number or a type.")
        name_of_type = SCALARS[kind - 1]
        if name_of_type in _NAMED:
            name_of_type = _text(found.get(6, b""))
            if name_of_type.removeprefix(".").removeprefix(f"{package}." if package else "") in maps:
                name_of_type = "map"
        oneof = None
        if 9 in found and not found.get(17) and _int(found[9]) < len(oneofs):
            oneof = oneofs[_int(found[9])]
        label = _LABELS.get(_int(found.get(4, 1)), "")
        return Field(name=_text(found.get(1, b"")), number=number, label=label, type=name_of_type, oneof=oneof)

    @staticmethod
    def _name(data: bytes) -> str:
        return _text(dict(_fields(data)).get(1, b""))

    @staticmethod
    def _is_map_entry(data: bytes) -> bool:
        options = dict(_fields(data)).get(7, b"")
        return isinstance(options, bytes) and bool(dict(_fields(options)).get(7))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == 0:
            value, position = _varint(data, position)
        elif wire == 2:
            size, position = _varint(data, position)
            value = data[position : position + size]
            position += size
            if position > len(data):
                raise InvalidSchema("The descriptor is cut off.")
        elif wire in (1, 5):
            value = b""
            position += 8 if wire == 1 else 4
        else:
            raise InvalidSchema("The text is neither a Protobuf schema nor a descriptor of one.")
        yield number, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise InvalidSchema("The descriptor is cut off.")


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise InvalidSchema("The descriptor holds a name that is no text.") from None


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise InvalidSchema("The descriptor holds a number where something else should be.")
    return value


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise InvalidSchema("The descriptor holds something where a number should be.")
    return value
