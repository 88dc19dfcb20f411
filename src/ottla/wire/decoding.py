"""Compiles the decoder of one message class in one version: the protocol's one bounded reader.

Straight-line Python with nested structs inlined; neighbouring fields of fixed size become one `Struct.unpack_from`.
Nothing trusts the bytes: a length must lie within what is left, a count must leave every element its least size, all
counts together must stay within the caller's limit, a negative length means null and only where null is legal, text
must be UTF-8, tags must ascend and fill their declared size. Whatever is wrong surfaces as `Malformed`: what `struct`
and indexing notice by themselves is translated at the edge. Driven by `Message.read` at the first use of a version, and
by `wire.in_steps`, for which the same function stops now and then.

Stricter than Kafka on purpose in three places, none of which a sound client reaches: Kafka takes tags in any order,
ignores a known tag's declared size, and replaces bytes that are not UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.wire.message import UNKNOWN_TAGS, Message
from ottla.wire.primitives import MAX_STRING_BYTES, read_unsigned_varint
from ottla.wire.schema import FORMATS, SIZES, Field, fields_of, is_flexible, least_element_size

_UNPACKERS_MAX = 256

Unpack = Callable[[bytes | memoryview, int], tuple[int, ...]]


class Unpackers(dict[int, Unpack]):
    """How to read so many numbers of one kind at once; long arrays are rare and not kept."""

    __slots__ = ("letter",)

    def __init__(self, letter: str) -> None:
        self.letter = letter

    def __missing__(self, count: int) -> Unpack:
        unpack = struct.Struct(f">{count}{self.letter}").unpack_from
        if count < _UNPACKERS_MAX:
            self[count] = unpack
        return unpack


_UNPACKERS = {letter: Unpackers(letter) for letter in "bhHiIqd"}


def malformed(reason: str) -> Malformed:
    return Malformed(reason)


def _bad_length(name: str, length: int, left: int) -> Malformed:
    return Malformed(f"{name}: a length of {length} where {left} bytes are left")


def _bad_count(name: str, count: int, left: int) -> Malformed:
    return Malformed(f"{name}: a count of {count} where {left} bytes are left")


def _read_tag(buffer: bytes | memoryview, position: int, end: int, last: int) -> tuple[int, int, int]:
    """The next tag, where its data begins and where it ends."""
    tag, position = read_unsigned_varint(buffer, position)
    size, position = read_unsigned_varint(buffer, position)
    if tag <= last:
        raise Malformed(f"tag {tag} after tag {last}")
    if position + size > end:
        raise _bad_length(f"tag {tag}", size, end - position)
    return tag, position, position + size


def _too_many(name: str) -> Malformed:
    return Malformed(f"{name}: more elements in one message than its reader allows")


def _read_unknown_tags(
    buffer: bytes | memoryview, position: int, end: int, count: int
) -> tuple[tuple[tuple[int, bytes], ...], int]:
    """A section of tagged fields, of a struct that has none in this version; and the position after it."""
    if count * 2 > end - position:
        raise _bad_count("tagged fields", count, end - position)
    unknown = []
    tag = -1
    for _ in range(count):
        tag, position, stop = _read_tag(buffer, position, end, tag)
        unknown.append((tag, bytes(buffer[position:stop])))
        position = stop
    return tuple(unknown), position


class _Item(NamedTuple):
    letter: str
    target: str


class _Source:
    """The lines of one function under construction, and the run of fixed-size fields not yet read."""

    def __init__(self, owner: type[Message], version: int, step_bytes: int | None) -> None:
        self.owner = owner
        self.version = version
        self.step_bytes = step_bytes
        self.lines: list[str] = []
        self.depth = 2
        self.names: dict[str, object] = {
            "new": object.__new__,
            "varint": read_unsigned_varint,
            "bad_length": _bad_length,
            "bad_count": _bad_count,
            "too_many": _too_many,
            "read_tag": _read_tag,
            "read_unknown_tags": _read_unknown_tags,
            "Malformed": Malformed,
            "struct_error": struct.error,
        }
        self.run: list[_Item] = []
        self.fresh = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def use(self, prefix: str, value: object) -> str:
        """A name for `value` in the function's globals."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.name(prefix)
        self.names[name] = value
        return name

    def flush(self) -> None:
        run, self.run = self.run, []
        if not run:
            return
        unpack = self.name("unpack")
        self.names[unpack] = struct.Struct(">" + "".join(item.letter for item in run)).unpack_from
        self.line(f"{', '.join(item.target for item in run)}, = {unpack}(buffer, position)")
        self.line(f"position += {sum(SIZES[item.letter] for item in run)}")

    def read_varint(self, target: str) -> None:
        """One byte in nearly all cases, and then read together with the fields before it."""
        if self.run:
            self.run.append(_Item("B", target))
            self.flush()
        else:
            self.line(f"{target} = buffer[position]")
            self.line("position += 1")
        self.line(f"if {target} > 127:")
        self.line(f"    {target}, position = varint(buffer, position - 1)")

    def pause(self) -> None:
        """Where the function may stop, if it is one that is called in steps."""
        if self.step_bytes is not None:
            self.line("if position > pause:")
            self.line("    yield")
            self.line(f"    pause = position + {self.step_bytes}")


def source_of_decoder(
    owner: type[Message], version: int, step_bytes: int | None = None
) -> tuple[str, dict[str, object]]:
    """The text of the function, and the names that it uses. With `step_bytes` it is a generator, which stops between
    two elements of an array, of whatever is not a number, when it has read so many."""
    source = _Source(owner, version, step_bytes)
    if _has_records(owner):
        source.line("view = memoryview(buffer)")
    if step_bytes is not None:
        source.line(f"pause = position + {step_bytes}")
    _read_struct(source, owner, "message")
    source.flush()
    source.pause()
    source.line("return message, position")
    text = [
        "def decode(buffer, position, end, room):",
        "    try:",
        *source.lines,
        "    except (struct_error, IndexError, UnicodeDecodeError) as error:",
        f"        raise Malformed(f'{owner.__name__} v{version}: {{error}}') from None",
    ]
    return "\n".join(text), source.names


def compile_decoder(
    owner: type[Message], version: int
) -> Callable[[bytes | memoryview, int, int, int], tuple[Message, int]]:
    decode = owner._decoders[version] = _compiled(owner, version, None)
    return decode


def compile_step_decoder(
    owner: type[Message], version: int, step_bytes: int
) -> Callable[[bytes | memoryview, int, int, int], Generator[None, None, tuple[Message, int]]]:
    """The same as a generator, which returns what the other does."""
    return _compiled(owner, version, step_bytes)


def _compiled(owner: type[Message], version: int, step_bytes: int | None) -> Callable[..., Any]:
    if version not in owner.VERSIONS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{owner.__name__} has no version {version}")
    text, names = source_of_decoder(owner, version, step_bytes)
    exec(compile(text, f"<{owner.__name__} v{version} decoder>", "exec"), names)
    decode = names["decode"]
    assert callable(decode)
    return decode


def _has_records(owner: type[Message]) -> bool:
    return any(f.kind == "records" or (f.struct is not None and _has_records(f.struct)) for f in fields_of(owner))


def _default(source: _Source, field: Field) -> str:
    """An expression for a fresh default."""
    value = field.default_value()
    return f"{source.use('make', field.struct)}()" if isinstance(value, Message) else repr(value)


def _read_struct(source: _Source, owner: type[Message], variable: str) -> None:
    version = source.version
    flexible = is_flexible(owner, version)
    source.line(f"{variable} = new({source.use('Class', owner)})")
    tagged: list[Field] = []
    for field in fields_of(owner):
        target = f"{variable}.{field.name}"
        if version in field.versions and version not in field.tagged:
            _read_field(source, field, target, flexible and not field.inflexible)
            continue
        source.line(f"{target} = {_default(source, field)}")
        if version in field.tagged:
            tagged.append(field)
    if flexible:
        _read_tags(source, tagged, variable)
    else:
        source.line(f"{variable}.{UNKNOWN_TAGS} = ()")


def _read_tags(source: _Source, tagged: list[Field], variable: str) -> None:
    count, unknown, tag, stop = (source.name(prefix) for prefix in ("n", "unknown", "tag", "stop"))
    source.read_varint(count)
    source.line(f"{variable}.{UNKNOWN_TAGS} = ()")
    source.line(f"if {count}:")
    source.depth += 1
    _take_room(source, count, "tagged fields")
    if not tagged:
        source.line(f"{variable}.{UNKNOWN_TAGS}, position = read_unknown_tags(buffer, position, end, {count})")
        source.depth -= 1
        return
    source.line(f"if {count} * 2 > end - position:")
    source.line(f"    raise bad_count('tagged fields', {count}, end - position)")
    source.line(f"{unknown} = []")
    source.line(f"{tag} = -1")
    source.line(f"for _ in range({count}):")
    source.depth += 1
    source.line(f"{tag}, position, {stop} = read_tag(buffer, position, end, {tag})")
    for field in tagged:
        source.line(f"if {tag} == {field.tag}:")
        source.depth += 1
        _read_field(source, field, f"{variable}.{field.name}", True, in_tag=True)
        source.flush()
        source.line(f"if position != {stop}:")
        source.line(f"    raise Malformed('{field.name} does not fill its tag')")
        source.line("continue")
        source.depth -= 1
    source.line(f"{unknown}.append(({tag}, bytes(buffer[position:{stop}])))")
    source.line(f"position = {stop}")
    source.depth -= 1
    source.line(f"{variable}.{UNKNOWN_TAGS} = tuple({unknown})")
    source.depth -= 1


def _read_field(source: _Source, field: Field, target: str, flexible: bool, *, in_tag: bool = False) -> None:
    nullable = source.version in field.nullable
    if field.is_array:
        _read_array(source, field, target, flexible, nullable)
    elif field.struct is not None:
        _read_nested(source, field.struct, target, nullable, in_tag)
    elif field.kind in FORMATS:
        source.run.append(_Item(FORMATS[field.kind], target))
    else:
        _read_bytes(source, field.kind, field.name, target, flexible, nullable)


def _read_nested(source: _Source, owner: type[Message], target: str, nullable: bool, in_tag: bool) -> None:
    variable = source.name("s")
    source.flush()
    if nullable:
        present = source.name("n")
        source.line(f"{present} = buffer[position]")
        source.line("position += 1")
        # A struct's null is a negative byte, but a zero in a tagged field: see `wire.encoding`.
        source.line(f"if {present} == 0:" if in_tag else f"if {present} > 127:")
        source.line(f"    {target} = None")
        source.line("else:")
        source.depth += 1
    _read_struct(source, owner, variable)
    source.flush()
    source.line(f"{target} = {variable}")
    if nullable:
        source.depth -= 1


def _read_bytes(source: _Source, kind: str, name: str, target: str, flexible: bool, nullable: bool) -> None:
    size, stop = source.name("n"), source.name("stop")
    if flexible:
        source.read_varint(size)
        source.line(f"{size} -= 1")
    else:
        source.run.append(_Item("h" if kind == "string" else "i", size))
        source.flush()
    if nullable:
        source.line(f"if {size} < 0:")
        source.line(f"    {target} = None")
        source.line("else:")
        source.depth += 1
    source.line(f"{stop} = position + {size}")
    wrong = [f"{stop} > end"]
    if not nullable:
        wrong.append(f"{size} < 0")
    if kind == "string" and flexible:
        wrong.append(f"{size} > {MAX_STRING_BYTES}")
    source.line(f"if {' or '.join(wrong)}:")
    source.line(f"    raise bad_length('{name}', {size}, end - position)")
    if kind == "string":
        source.line(f"{target} = str(buffer[position:{stop}], 'utf-8')")
    elif kind == "bytes":
        source.line(f"{target} = bytes(buffer[position:{stop}])")
    else:
        source.line(f"{target} = view[position:{stop}]")
    source.line(f"position = {stop}")
    if nullable:
        source.depth -= 1


def _take_room(source: _Source, count: str, name: str) -> None:
    source.line(f"room -= {count}")
    source.line("if room < 0:")
    source.line(f"    raise too_many('{name}')")


def _read_array(source: _Source, field: Field, target: str, flexible: bool, nullable: bool) -> None:
    count = source.name("n")
    if flexible:
        source.read_varint(count)
        source.line(f"{count} -= 1")
    else:
        source.run.append(_Item("i", count))
        source.flush()
    if nullable:
        source.line(f"if {count} < 0:")
        source.line(f"    {target} = None")
        source.line("else:")
        source.depth += 1
    size = least_element_size(field, source.version, flexible)
    assert size > 0, f"{field.name}: an element may take no bytes, so nothing bounds the count"
    wrong = f"{count} * {size} > end - position" if size > 1 else f"{count} > end - position"
    source.line(f"if {wrong}{'' if nullable else f' or {count} < 0'}:")
    source.line(f"    raise bad_count('{field.name}', {count}, end - position)")
    _take_room(source, count, field.name)
    if field.kind == "uuid":
        at, stop = source.name("i"), source.name("stop")
        source.line(f"{stop} = position + {count} * 16")
        source.line(f"{target} = [bytes(buffer[{at} : {at} + 16]) for {at} in range(position, {stop}, 16)]")
        source.line(f"position = {stop}")
    elif field.kind in FORMATS:
        unpackers = source.use("unpackers", _UNPACKERS[FORMATS[field.kind]])
        source.line(f"{target} = list({unpackers}[{count}](buffer, position))")
        source.line(f"position += {count} * {size}" if size > 1 else f"position += {count}")
    else:
        items, element = source.name("a"), source.name("e")
        source.line(f"{target} = {items} = []")
        source.line(f"for _ in range({count}):")
        source.depth += 1
        if field.struct is not None:
            _read_struct(source, field.struct, element)
            source.flush()
        else:
            _read_bytes(source, field.kind, field.name, element, flexible, False)
        source.line(f"{items}.append({element})")
        source.pause()
        source.depth -= 1
    if nullable:
        source.depth -= 1
