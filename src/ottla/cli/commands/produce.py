"""`ottla produce`: records from standard input or from files into a topic, by librdkafka.

Records with a key go where Java's clients send them (`murmur2`), so that whoever writes a key writes it to one place.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple, NoReturn

import typer

from ottla.cli import complete
from ottla.cli.librdkafka import Troubles, librdkafka_config, sentence
from ottla.cli.output import plural
from ottla.cli.schemas import RegistryUrl, find_schema, registry_of, split_message
from ottla.cli.session import Session, command, single
from ottla.cli.stalls import Stall
from ottla.errors import KafkaError, StartupError

app = single()

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CHUNK_BYTES = 1 << 18
_RECORD_BYTES_MAX = 64 << 20
_PARTITION_MAX = (1 << 31) - 1

Choose = Callable[[bytes | None], int]


class Draft(NamedTuple):
    """A record that is to be sent; -1 leaves the partition or the time open."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int = -1
    timestamp_ms: int = -1


class Shape(NamedTuple):
    """How a piece of input becomes a record."""

    key_separator: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    null_if_empty: bool
    from_json: bool
    encode_key: Callable[[bytes], bytes]
    encode_value: Callable[[bytes], bytes]


@command(
    app,
    "produce",
    examples=[
        "echo hello | ottla produce greetings",
        "ottla produce orders -K : orders.txt",
        "ottla produce orders -k ann -H source=web -z zstd < order.json",
        "ottla consume orders --json -e | ottla produce copy --from-json",
        "ottla produce payments --schema-registry http://localhost:8081 --value-schema latest payments.jsonl",
        "ottla produce payments --schema-registry http://localhost:8081 --value-schema @shop.proto:Payment p.jsonl",
    ],
    no_args_is_help=True,
)
def produce(
    session: Session,
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False, autocompletion=complete.topics)],
    files: Annotated[list[Path] | None, typer.Argument(help="A record a line; standard input if none.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="What stands between key and value; \\t is a tab.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE")] = None,
    partition: Annotated[
        int, typer.Option("--partition", "-p", min=-1, max=_PARTITION_MAX, help="Where to; -1 leaves it to the key.")
    ] = -1,
    partitioner: Annotated[
        str, typer.Option(help="murmur2 (as Java's clients), roundrobin, or module:function.")
    ] = "murmur2",
    compression: Annotated[str, typer.Option("--compression", "-z", help=", ".join(_CODECS))] = "none",
    acks: Annotated[str, typer.Option(help="Who must have a record: all, 1 or 0.")] = "all",
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", help="What ends a record.")] = "\\n",
    whole: Annotated[bool, typer.Option("--whole", help="Each file is one record.")] = False,
    null: Annotated[bool, typer.Option("--null", "-Z", help="An empty key or value is none: a tombstone.")] = False,
    from_json: Annotated[
        bool, typer.Option("--from-json", help="Each line is a record as `consume --json` writes it.")
    ] = False,
    schema_registry: RegistryUrl = None,
    value_schema: Annotated[
        str | None,
        typer.Option(
            metavar="latest|ID|@FILE[:MESSAGE]",
            help="Values are JSON to be encoded with this. Of Protobuf, MESSAGE is the first if not given.",
        ),
    ] = None,
    key_schema: Annotated[str | None, typer.Option(metavar="latest|ID|@FILE[:MESSAGE]", help="So are keys.")] = None,
) -> None:
    """Write records to a topic: a line a record, from standard input or from files."""
    from ottla.cli.formats import unescape

    if compression not in _CODECS:
        raise typer.BadParameter(f"--compression {compression} is none of {', '.join(_CODECS)}.")
    if acks not in ("all", "-1", "0", "1"):
        raise typer.BadParameter(f"--acks {acks} is none of all, 1, 0.")
    if from_json and (key_separator is not None or whole):
        raise typer.BadParameter("--from-json says what keys are and where a record ends: leave -K and --whole out.")
    shape = Shape(
        key_separator=None if key_separator is None else unescape(key_separator),
        key=None if key is None else os.fsencode(key),
        headers=[_header(each) for each in header or []],
        null_if_empty=null,
        from_json=from_json,
        encode_key=_encoder(session, schema_registry, f"{topic}-key", key_schema),
        encode_value=_encoder(session, schema_registry, f"{topic}-value", value_schema),
    )
    config = librdkafka_config(session.properties, session.settings)
    config.update({"compression.type": compression, "acks": acks, "partitioner": "murmur2_random"})
    if acks in ("all", "-1"):
        config.setdefault("enable.idempotence", "true")
    sender = Sender(session, topic, config, _chooser(session, topic, partition, partitioner))
    started_s = time.monotonic()
    with _progress(session, files or []) as advance:
        for piece in _pieces(files or [], unescape(delimiter), whole, advance):
            sender.send(_draft(piece, shape))
        sender.finish()
    seconds = time.monotonic() - started_s
    per_partition = {str(each): sender.delivered[each] for each in sorted(sender.delivered)}
    total = sum(sender.delivered.values())
    session.out.item(
        {"topic": topic, "records": total, "bytes": sender.sent_bytes, "partitions": per_partition},
        f"{plural(total, 'record')} to {topic}" + (f", {total / seconds:.0f} records/s" if total >= 10_000 else ""),
    )


class Sender:
    """Hands records to librdkafka, and counts what arrived. The first failure ends it all."""

    def __init__(self, session: Session, topic: str, config: dict[str, Any], choose: Choose | None) -> None:
        from confluent_kafka import KafkaException, Producer

        self._session = session
        self._topic = topic
        self._choose = choose
        self._without_key = False
        self._refusal: type[Exception] = KafkaException
        self._troubles = Troubles(session.bootstrap)
        self._stall = Stall(session, topic, now=time.monotonic)
        self.delivered: Counter[int] = Counter()
        self.sent_bytes = 0
        try:
            self._producer = Producer({**config, "error_cb": self._troubles.on_error})
        except KafkaException as error:
            raise StartupError(f"The producer cannot be made: {sentence(error.args[0])}") from None

    def send(self, draft: Draft) -> None:
        options: dict[str, Any] = {}
        partition = draft.partition
        if partition < 0 and self._choose is not None:
            partition = self._chosen(draft.key)
        if partition >= 0:
            options["partition"] = partition
        if draft.timestamp_ms >= 0:
            options["timestamp"] = draft.timestamp_ms
        if draft.headers:
            options["headers"] = draft.headers
        while True:
            self._check()
            try:
                self._producer.produce(self._topic, draft.value, draft.key, on_delivery=self._on_delivery, **options)
            except BufferError:
                self._producer.poll(0.1)
                self._stall.look(len(self._producer))
                continue
            except self._refusal as error:
                self._refuse(draft, error.args[0])
            self._without_key = self._without_key or draft.key is None
            self._producer.poll(0)
            self.sent_bytes += len(draft.key or b"") + len(draft.value or b"")
            return

    def _chosen(self, key: bytes | None) -> int:
        assert self._choose is not None  # Asked only where somebody chooses.
        try:
            return self._choose(key)
        except ValueError as error:
            raise StartupError(str(error)) from None

    def finish(self) -> None:
        self._stall.on_progress()
        try:
            while left := self._producer.flush(0.5):
                self._check()
                self._stall.look(left)
        except self._refusal as error:  # What is fatal for librdkafka it may tell in this way first.
            self._troubles.on_refusal(error.args[0])
        self._check()

    def _refuse(self, draft: Draft, error: Any) -> NoReturn:
        """What librdkafka does not even take."""
        from confluent_kafka import KafkaError as Refused

        self._give_up()
        if error.code() == Refused.MSG_SIZE_TOO_LARGE:
            raise StartupError(
                f"A record of {len(draft.key or b'') + len(draft.value or b'')} bytes is more than a producer sends "
                "unless told so: raise -X message.max.bytes, and max.message.bytes of the topic."
            )
        raise StartupError(f"A record was not taken: {sentence(error)}")

    def _on_delivery(self, error: Any, message: Any) -> None:
        self._stall.on_progress()
        if error is not None:
            self._troubles.on_refusal(error)
        else:
            self.delivered[message.partition()] += 1

    def _check(self) -> None:
        if self._troubles.is_final:
            self._give_up()
            if self._without_key and self._troubles.is_invalid_record and _is_compacted(self._session, self._topic):
                raise StartupError(
                    f"A record without a key was not taken: {self._topic} is compacted, and keeps the last record of "
                    "each key. Give all the same with -k, or say with -K what stands between key and value."
                )
            self._troubles.check("A record was not taken: ")

    def _give_up(self) -> None:
        """Also on what is kept for records on their way, or librdkafka would try on until the process ends."""
        self._producer.purge()
        self._producer.poll(0)


def _is_compacted(session: Session, topic: str) -> bool:
    """Asked of the cluster: why it refuses a record stands in its answer, but librdkafka does not pass that on."""
    from ottla.admin.configs import ResourceKind, describe_configs

    try:
        with session.client() as client:
            found = describe_configs(client, ResourceKind.TOPIC, topic, keys=["cleanup.policy"])
    except (KafkaError, StartupError):
        return False  # Who may write to a topic need not be allowed to see its configs.
    return any("compact" in (each.value or "").split(",") for each in found)


def _chooser(session: Session, topic: str, partition: int, name: str) -> Choose | None:
    """Who chooses the partition; none leaves it to librdkafka, which knows Java's way."""
    if partition < 0 and name == "murmur2":
        return None
    with session.client() as client:
        known = client.topics([topic]).get(topic)
    if partition >= 0:
        if known is not None and partition not in known.partitions:
            raise StartupError(f"There is no partition {partition} in {topic}: see `ottla topic describe {topic}`.")
        return lambda key: partition
    if known is None:
        raise StartupError(f"The topic {topic} does not exist: make it with `ottla topic create {topic}`.")
    count = len(known.partitions)
    if name == "roundrobin":
        turns = iter(range(sys.maxsize))
        return lambda key: next(turns) % count
    from ottla.records.partitioner import choosing_function

    try:
        return choosing_function(name, topic, count)
    except ValueError as error:
        raise StartupError(str(error)) from None


def _encoder(session: Session, url: str | None, subject: str, wanted: str | None) -> Callable[[bytes], bytes]:
    if wanted is None:
        return bytes
    from ottla.cli.serialization import Encoder

    registry = registry_of(session, url)
    if registry is None:
        raise typer.BadParameter("A schema needs a registry: give --schema-registry URL.")
    schema, message = split_message(wanted)
    return Encoder(find_schema(registry, subject, schema), message).encode


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name or name != name.encode(errors="ignore").decode():
        raise typer.BadParameter(f"--header {text} is not of the form NAME=VALUE.")
    return name, os.fsencode(value) if equals else None


def _draft(piece: bytes, shape: Shape) -> Draft:
    if shape.from_json:
        return _draft_from_json(piece, shape)
    key, value = shape.key, piece
    if shape.key_separator is not None:
        found, separator, rest = piece.partition(shape.key_separator)
        if separator:
            key, value = found, rest
    return Draft(
        key=None if key is None or (shape.null_if_empty and not key) else shape.encode_key(key),
        value=None if shape.null_if_empty and not value else shape.encode_value(value),
        headers=shape.headers,
    )


def _draft_from_json(piece: bytes, shape: Shape) -> Draft:
    try:
        read = json.loads(piece)
        headers = [(_name(each["name"]), _bytes(each, "value")) for each in read.get("headers") or ()]
        key, value = _bytes(read, "key"), _bytes(read, "value")
        timestamp_ms = int(read.get("timestamp", -1))
        timestamp_ms.to_bytes(8, "big", signed=True)  # Raises OverflowError for what no record can have.
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        shown = piece[:80].decode(errors="replace")
        raise StartupError(f"{shown!r} is no record as `ottla consume --json` writes it.") from None
    return Draft(
        key=None if key is None else shape.encode_key(key),
        value=None if value is None else shape.encode_value(value),
        headers=[*headers, *shape.headers],
        timestamp_ms=timestamp_ms,
    )


def _name(told: object) -> str:
    return str(told).encode().decode()  # Raises ValueError for half a character.


def _bytes(told: dict[str, Any], name: str) -> bytes | None:
    """Text is itself; what is no text is JSON. Bytes that are no text are told beside it as they are."""
    exact, value = told.get(f"{name}_base64"), told.get(name)
    if exact is not None:
        return base64.b64decode(exact, validate=True)
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()


def _pieces(files: list[Path], delimiter: bytes, whole: bool, advance: Callable[[int], None]) -> Iterator[bytes]:
    if not delimiter:
        raise typer.BadParameter("--delimiter is empty: use --whole to send a file as one record.")
    if not files:
        yield from _whole(sys.stdin.buffer) if whole else _split(sys.stdin.buffer, delimiter, advance)
    for path in files:
        try:
            with path.open("rb") as file:
                yield from _whole(file) if whole else _split(file, delimiter, advance)
        except OSError as error:
            raise StartupError(f"{path} cannot be read: {error.strerror}.") from None


def _whole(file: BinaryIO) -> Iterator[bytes]:
    yield file.read()


def _split(file: BinaryIO, delimiter: bytes, advance: Callable[[int], None]) -> Iterator[bytes]:
    """The pieces between delimiters. A terminal and a pipe are read as they come, so that a line goes out at once."""
    read = getattr(file, "read1", file.read)
    rest = b""
    while data := read(_CHUNK_BYTES):
        *pieces, rest = (rest + data).split(delimiter)
        yield from pieces
        advance(len(data))
        if len(rest) > _RECORD_BYTES_MAX:
            raise StartupError(f"A record has more than {_RECORD_BYTES_MAX >> 20} MiB: is the delimiter right?")
    if rest:
        yield rest


class _progress:
    """A bar on a terminal while files are read; nothing elsewhere."""

    def __init__(self, session: Session, files: list[Path]) -> None:
        self._bar: Any = None
        if not files or session.out.as_json or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        total = sum(path.stat().st_size for path in files if path.exists())
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Callable[[int], None]:
        if self._bar is None:
            return lambda size: None
        self._bar.start()
        return lambda size: self._bar.advance(self._task, size)

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
