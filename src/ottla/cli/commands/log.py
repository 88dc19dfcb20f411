"""`ottla log`: the files of a log, read as they are on the disk, without any node."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.cli.output import Output, cell, plural
from ottla.cli.session import group
from ottla.cli.times import show_moment
from ottla.errors import Malformed, StartupError

app = group("The files of a log, as they are on the disk.")

_SHOWN_BYTES = 200


@app.callback()
def files() -> None:
    """`dump` would otherwise be the whole of `log`."""


@app.command("dump")
def dump(
    paths: Annotated[list[Path], typer.Argument(help="Segments, indexes, or directories of partitions.")],
    records: Annotated[bool, typer.Option("--records", "-r", help="Every record, with its key and value.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON, one object a line.")] = False,
) -> None:
    """Show what is in segment files and indexes, batch by batch; and what is wrong in them, with status 1.

    $ ottla log dump ottla-data/node-1/orders-0

    $ ottla log dump ottla-data/node-1/orders-0/00000000000000000000.log --records --json
    """
    out = Output(as_json=as_json)
    sound = True
    for path in _expand(paths):
        out.note(str(path))
        if path.suffix == ".log":
            sound &= _dump_segment(out, path, records)
        else:
            sound &= _dump_index(out, path)
    if not sound:
        raise typer.Exit(1)


def _expand(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [each for each in sorted(path.iterdir()) if each.suffix in (".log", *_INDEXES)]
            if not inside:
                raise StartupError(f"There are no segments in {path}: name the directory of a partition.")
            found += inside
        elif not path.exists():
            raise StartupError(f"There is no file {path}.")
        elif path.suffix not in (".log", *_INDEXES):
            raise StartupError(f"{path} is no segment and no index: name a .log, {', '.join(_INDEXES)}.")
        else:
            found.append(path)
    return found


def _dump_segment(out: Output, path: Path, records: bool) -> bool:
    from ottla.records.batch import CompressionType, crc_is_valid, read_header
    from ottla.records.records import iterate

    data = _read(path)
    position = 0
    sound = True
    while position < len(data):
        try:
            header = read_header(data, position)
            batch = memoryview(data)[position : position + header.size]
            if len(batch) < header.size:
                raise Malformed(f"the batch says {header.size} bytes, and {len(batch)} are left")
        except Malformed as error:
            _say_broken(out, path, position, str(error))
            return False
        valid = crc_is_valid(data, position, header.size)
        row: dict[str, Any] = {
            "position": position,
            "size_bytes": header.size,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "records": header.record_count,
            "leader_epoch": header.leader_epoch,
            "max_timestamp": header.max_timestamp,
            "compression": CompressionType(header.compression).name.lower() if header.compression <= 4 else "unknown",
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "crc": header.crc,
            "crc_valid": valid,
        }
        flags = "".join(f" {name}" for name in ("transactional", "control") if row[name])
        text = (
            f"at {position}: offsets {header.base_offset} to {header.last_offset}, "
            f"{plural(header.record_count, 'record')}, {header.size} bytes, epoch {header.leader_epoch}, "
            f"{row['compression']}, {show_moment(header.max_timestamp)}, "
            f"producer {header.producer_id}/{header.producer_epoch} from "
            f"sequence {header.base_sequence}{flags}, crc {header.crc:08x}{'' if valid else ' WRONG'}"
        )
        out.item(row, text)
        sound &= valid
        if records and valid:
            try:
                for each in iterate(batch):
                    _show_record(out, each, header.is_control)
            except Malformed as error:
                _say_broken(out, path, position, str(error))
                sound = False
        position += header.size
    return sound


def _show_record(out: Output, record: Any, control: bool) -> None:
    from ottla.cli.formats import text_of
    from ottla.records.control import ControlType, control_type

    row: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": text_of(record.key),
        "value": text_of(record.value),
        "headers": [{"name": name, "value": text_of(value)} for name, value in record.headers],
    }
    shown = f"  {record.offset}  {show_moment(record.timestamp)}"
    if control:
        kind = control_type(record.key)
        name = ControlType(kind).name.lower() if kind in ControlType._value2member_map_ else str(kind)
        row["control"] = name
        out.item(row, f"{shown}  control {name}")
        return
    key, value = (cell(None if each is None else each[:_SHOWN_BYTES]) for each in (row["key"], row["value"]))
    headers = "".join(f"  {cell(name)}={cell(text_of(content))}" for name, content in record.headers)
    out.item(row, f"{shown}  {key}  {value}{headers}")


_OFFSET_ENTRY, _TIME_ENTRY, _TXN_ENTRY = struct.Struct(">ii"), struct.Struct(">qi"), struct.Struct(">hqqqq")
_INDEXES = {
    ".index": (_OFFSET_ENTRY, ("relative_offset", "position")),
    ".timeindex": (_TIME_ENTRY, ("timestamp", "relative_offset")),
    ".txnindex": (_TXN_ENTRY, ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")),
}


def _dump_index(out: Output, path: Path) -> bool:
    entry, names = _INDEXES[path.suffix]
    data = _read(path)
    whole = len(data) // entry.size * entry.size
    base_offset = int(path.stem) if path.stem.isdecimal() else 0
    for fields in entry.iter_unpack(data[:whole]):
        row: dict[str, Any] = dict(zip(names, fields, strict=True))
        if not any(fields):
            continue  # Kafka leaves room at the end of an index that is in use.
        if "relative_offset" in row:
            row["offset"] = base_offset + row.pop("relative_offset")
        shown = [f"{name} {show_moment(value) if name == 'timestamp' else value}" for name, value in row.items()]
        out.item(row, "  ".join(shown))
    if whole != len(data):
        _say_broken(out, path, whole, f"{len(data) - whole} bytes are no whole entry")
        return False
    return True


def _say_broken(out: Output, path: Path, position: int, why: str) -> None:
    out.item({"file": str(path), "position": position, "error": why}, f"at {position}: BROKEN: {why}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StartupError(f"{path} cannot be read: {error.strerror}.") from None
