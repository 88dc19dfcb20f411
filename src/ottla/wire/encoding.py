"""Compiles the encoder of one message class in one version: straight-line Python, nested structs inlined.

Neighbouring fields of fixed size, the counts before strings and arrays, and whole arrays of numbers become one
`Struct.pack`; `Message.encode` joins the pieces once. Driven by `Message.pieces` at the first use of a version, and by
`wire.in_steps`, for which the same function stops now and then.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.wire.message import Message
from ottla.wire.primitives import MAX_STRING_BYTES, SMALL_VARINTS, unsigned_varint
from ottla.wire.schema import FORMATS, Field, fields_of, is_flexible

NULL_STRUCT = b"\xff"
NULL_TAGGED_STRUCT = b"\x00"
_PLANS_MAX = 512


class Plans(dict[tuple[int, ...], tuple[object, ...]]):
    """For a run of fields with arrays of numbers in it: how to pack it, given the arrays' counts (-1 for null).

    A plan is the pack function followed by the encoded counts. Bounded: callers have few distinct combinations of
    replica counts, and a caller that has many only loses the cache.
    """

    __slots__ = ("flexible", "formats")

    def __init__(self, formats: tuple[tuple[str, bool], ...], flexible: bool) -> None:
        self.formats = formats
        self.flexible = flexible

    def __missing__(self, counts: tuple[int, ...]) -> tuple[object, ...]:
        remaining = iter(counts)
        layout = ">"
        encoded = []
        for letter, is_array in self.formats:
            if is_array:
                count = next(remaining)
                prefix = unsigned_varint(count + 1) if self.flexible else struct.pack(">i", count)
                encoded.append(prefix)
                layout += f"{len(prefix)}s{max(count, 0)}{letter}"
            else:
                layout += letter
        plan = (struct.Struct(layout).pack, *encoded)
        if len(self) >= _PLANS_MAX:
            self.clear()
        self[counts] = plan
        return plan


def refuse_field(name: str, version: int, field: str) -> None:
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{name} v{version} cannot carry {field}")


def string_length(size: int) -> bytes:
    if size - 1 > MAX_STRING_BYTES:
        raise ValueError(f"a string of {size - 1} bytes is too long for the protocol")
    return unsigned_varint(size)


def tagged_section(known: Sequence[tuple[int, bytes]], unknown: tuple[tuple[int, bytes], ...]) -> bytes:
    """Tagged fields by ascending tag (KIP-482)."""
    section = sorted([*known, *unknown])
    parts = [unsigned_varint(len(section))]
    last = -1
    for tag, data in section:
        if tag <= last:
            raise ValueError(f"tag {tag} occurs twice")
        last = tag
        parts += (unsigned_varint(tag), unsigned_varint(len(data)), data)
    return b"".join(parts)


class _Item(NamedTuple):
    letter: str
    value: str
    counter: str = ""
    """The variable with an array's count, when the item is an array of numbers."""


class _Source:
    """The lines of one function under construction, and the run of values not yet packed."""

    def __init__(self, version: int, step_pieces: int | None) -> None:
        self.version = version
        self.step_pieces = step_pieces
        self.lines: list[str] = []
        self.depth = 2
        self.names: dict[str, object] = {
            "SMALL": SMALL_VARINTS,
            "varint": unsigned_varint,
            "string_length": string_length,
            "tagged_section": tagged_section,
            "refuse_field": refuse_field,
            "struct_error": struct.error,
        }
        self.run: list[_Item] = []
        self.fresh = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def constant(self, prefix: str, value: object) -> str:
        for name, known in self.names.items():
            if known == value and type(known) is type(value) and name.startswith(prefix):
                return name
        name = self.name(prefix)
        self.names[name] = value
        return name

    def flush(self, out: str, flexible: bool) -> None:
        run, self.run = self.run, []
        if not run:
            return
        counts = [item.counter for item in run if item.counter]
        if not counts:
            if all(item.value.isdecimal() for item in run):
                constant = struct.pack(">" + "".join(item.letter for item in run), *(int(item.value) for item in run))
                self.line(f"{out}({constant!r})")
                return
            pack = self.name("pack")
            self.names[pack] = struct.Struct(">" + "".join(item.letter for item in run)).pack
            self.line(f"{out}({pack}({', '.join(item.value for item in run)}))")
            return
        plans = self.name("plans")
        self.names[plans] = Plans(tuple((item.letter, bool(item.counter)) for item in run), flexible)
        prefixes = {count: self.name("c") for count in counts}
        self.line(f"pack, {', '.join(prefixes.values())} = {plans}[{', '.join(counts)},]")
        values = [f"{prefixes[item.counter]}, *{item.value}" if item.counter else item.value for item in run]
        self.line(f"{out}(pack({', '.join(values)}))")

    def pause(self, out: str) -> None:
        """Where the function may stop, if it is one that is called in steps. What is in a tagged field has a size in
        front, so that it is whole when it is told."""
        if self.step_pieces is not None and out == "out":
            self.line(f"if len(parts) > {self.step_pieces}:")
            self.line("    yield b''.join(parts)")
            self.line("    parts.clear()")


def source_of_encoder(
    owner: type[Message], version: int, step_pieces: int | None = None
) -> tuple[str, dict[str, object]]:
    """The text of the function, and the names that it uses. With `step_pieces` it is a generator, which yields the
    bytes of about so many pieces at a time."""
    source = _Source(version, step_pieces)
    source.line("parts = []")
    source.line("out = parts.append")
    _write_struct(source, owner, "message", "out")
    source.flush("out", is_flexible(owner, version))
    source.line("return parts" if step_pieces is None else "yield b''.join(parts)")
    text = [
        "def encode(message):",
        "    try:",
        *source.lines,
        "    except struct_error as error:",
        f"        raise ValueError(f'{owner.__name__} v{version}: {{error}}') from None",
    ]
    return "\n".join(text), source.names


def compile_encoder(owner: type[Message], version: int) -> Callable[[Message], list[bytes | memoryview]]:
    encode = owner._encoders[version] = _compiled(owner, version, None)
    return encode


def compile_step_encoder(owner: type[Message], version: int, step_pieces: int) -> Callable[[Message], Iterator[bytes]]:
    """The same as a generator of what the message's bytes are, one after the other."""
    return _compiled(owner, version, step_pieces)


def _compiled(owner: type[Message], version: int, step_pieces: int | None) -> Callable[..., Any]:
    if version not in owner.VERSIONS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{owner.__name__} has no version {version}")
    text, names = source_of_encoder(owner, version, step_pieces)
    exec(compile(text, f"<{owner.__name__} v{version} encoder>", "exec"), names)
    encode = names["encode"]
    assert callable(encode)
    return encode


def _is_other_than_default(source: _Source, field: Field, value: str) -> str:
    """An expression that is true when the field has to be written."""
    default = field.default_value()
    if default is None:
        return f"{value} is not None"
    if field.is_array:
        return f"({value} is None or {value})" if field.nullable else value
    if field.kind == "bool":
        return f"not {value}" if default else value
    if field.struct is not None:
        return f"{value} != {source.constant('default', default)}"
    return f"{value} != {default!r}"


def _write_struct(source: _Source, owner: type[Message], variable: str, out: str) -> None:
    version = source.version
    flexible = is_flexible(owner, version)
    tagged: list[Field] = []
    for field in fields_of(owner):
        if version not in field.versions:
            if not field.ignorable:
                source.line(f"if {_is_other_than_default(source, field, f'{variable}.{field.name}')}:")
                source.line(f"    refuse_field({owner.__name__!r}, {version}, {field.name!r})")
        elif version in field.tagged:
            tagged.append(field)
        else:
            _write_field(source, field, f"{variable}.{field.name}", out, flexible and not field.inflexible)
    if flexible:
        _write_tags(source, sorted(tagged, key=lambda field: field.tag), variable, out)


def _write_tags(source: _Source, tagged: list[Field], variable: str, out: str) -> None:
    run = source.run
    unknown = f"{variable}.unknown_tagged_fields"
    present = [_is_other_than_default(source, field, f"{variable}.{field.name}") for field in tagged]
    source.line(f"if {' or '.join([*present, unknown])}:")
    source.depth += 1
    source.run = list(run)
    source.flush(out, True)
    known = "()"
    if tagged:
        known = source.name("known")
        source.line(f"{known} = []")
    for field, condition in zip(tagged, present, strict=True):
        parts, inner = source.name("parts"), source.name("out")
        source.line(f"if {condition}:")
        source.depth += 1
        source.line(f"{parts} = []")
        source.line(f"{inner} = {parts}.append")
        _write_field(source, field, f"{variable}.{field.name}", inner, True, in_tag=True)
        source.flush(inner, True)
        source.line(f'{known}.append(({field.tag}, b"".join({parts})))')
        source.depth -= 1
    source.line(f"{out}(tagged_section({known}, {unknown}))")
    source.depth -= 1
    source.line("else:")
    source.depth += 1
    source.run = [*run, _Item("B", "0")]
    source.flush(out, True)
    source.depth -= 1


def _write_field(source: _Source, field: Field, value: str, out: str, flexible: bool, *, in_tag: bool = False) -> None:
    nullable = source.version in field.nullable
    if field.is_array:
        _write_array(source, field, value, out, flexible, nullable)
    elif field.struct is not None:
        variable = source.name("s")
        source.line(f"{variable} = {value}")
        if nullable:
            source.flush(out, flexible)
            source.line(f"if {variable} is None:")
            # A struct's null is -1, but 0 in a tagged field: Kafka's generator writes it so, and its logs hold it.
            source.line(f"    {out}({NULL_TAGGED_STRUCT if in_tag else NULL_STRUCT!r})")
            source.line("else:")
            source.depth += 1
            source.run.append(_Item("b", "1"))
            _write_struct(source, field.struct, variable, out)
            source.flush(out, flexible)
            source.depth -= 1
        else:
            _write_struct(source, field.struct, variable, out)
    elif field.kind in FORMATS:
        source.run.append(_Item(FORMATS[field.kind], value))
    else:
        _write_bytes(source, field.kind, value, out, flexible, nullable)


def _write_bytes(source: _Source, kind: str, value: str, out: str, flexible: bool, nullable: bool) -> None:
    raw, size = source.name("b"), source.name("n")
    encoded = ".encode()" if kind == "string" else ""
    more = " + 1" if flexible else ""
    source.line(f"{raw} = {value}")
    if nullable:
        source.line(f"if {raw} is None:")
        source.line(f"    {raw} = b''")
        source.line(f"    {size} = {'0' if flexible else '-1'}")
        source.line("else:")
        source.depth += 1
    if encoded:
        source.line(f"{raw} = {raw}.encode()")
    source.line(f"{size} = len({raw}){more}")
    if nullable:
        source.depth -= 1
    if flexible:
        source.flush(out, flexible)
        longer = "string_length" if kind == "string" else "varint"
        source.line(f"{out}(SMALL[{size}] if {size} < 128 else {longer}({size}))")
    else:
        source.run.append(_Item("h" if kind == "string" else "i", size))
        source.flush(out, flexible)
    source.line(f"{out}({raw})")


def _write_array(source: _Source, field: Field, value: str, out: str, flexible: bool, nullable: bool) -> None:
    items, count = source.name("a"), source.name("n")
    source.line(f"{items} = {value}")
    if nullable:
        source.line(f"if {items} is None:")
        source.line(f"    {items} = ()")
        source.line(f"    {count} = -1")
        source.line("else:")
        source.line(f"    {count} = len({items})")
    else:
        source.line(f"{count} = len({items})")
    if field.kind in FORMATS and field.kind != "uuid":
        source.run.append(_Item(FORMATS[field.kind], items, count))
        return
    if flexible:
        source.flush(out, flexible)
        source.line(f"{out}(SMALL[{count} + 1] if {count} < 127 else varint({count} + 1))")
    else:
        source.run.append(_Item("i", count))
        source.flush(out, flexible)
    if field.kind == "uuid":
        source.line(f'{out}(b"".join({items}))')
        return
    element = source.name("e")
    source.line(f"for {element} in {items}:")
    source.depth += 1
    if field.struct is not None:
        _write_struct(source, field.struct, element, out)
    else:
        _write_bytes(source, field.kind, element, out, flexible, False)
    source.flush(out, flexible)
    source.pause(out)
    source.depth -= 1
