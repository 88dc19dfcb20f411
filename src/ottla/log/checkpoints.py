"""The small text files that remember offsets, replaced whole and atomically, and read back only if they are whole.

Three kinds share a shape (a version, a count, then one line an entry): offsets by partition for a log directory, and
epochs with their start offsets for a log. `partition.metadata`, `meta.properties` and the clean-shutdown marker are
Kafka's own small formats. What cannot be parsed is as good as absent to the functions here; callers know what to do
then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.errors import StartupError
from ottla.log import files
from ottla.model import TopicPartition, Uuid, uuid_from_text, uuid_to_text
from ottla.runtime.seams import Disk

_VERSION = 0


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [f"{_VERSION}\n{len(offsets)}\n"]
    lines += [f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items()]
    return "".join(lines).encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int] | None:
    """None unless every line that the header promises is there and sound."""
    rows = _rows(data, 3)
    if rows is None:
        return None
    try:
        return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError:
        return None


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    lines = [f"{epoch} {start}\n" for epoch, start in entries]
    return f"{_VERSION}\n{len(lines)}\n{''.join(lines)}".encode()


def decode_epochs(data: bytes) -> list[tuple[int, int]] | None:
    rows = _rows(data, 2)
    if rows is None:
        return None
    try:
        return [(int(epoch), int(start)) for epoch, start in rows]
    except ValueError:
        return None


def _rows(data: bytes, width: int) -> list[list[str]] | None:
    try:
        lines = data.decode().split("\n")
        if int(lines[0]) != _VERSION or lines[-1] != "":
            return None
        count = int(lines[1])
    except (ValueError, IndexError):
        return None
    rows = [line.split() for line in lines[2:-1]]
    if len(rows) != count or any(len(row) != width for row in rows):
        return None
    return rows


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """The offsets in the checkpoint at `path`; none if it is absent, empty as Kafka leaves a new one, or broken."""
    try:
        return decode_offsets(disk.read_file(path)) or {}
    except FileNotFoundError:
        return {}


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> Uuid | None:
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines())
        return uuid_from_text(fields["topic_id"]) if fields["version"] == "0" else None
    except (ValueError, KeyError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """What `meta.properties` (version 1) says: whose directory this is."""

    cluster_id: str
    node_id: int
    directory_id: Uuid

    def encode(self) -> bytes:
        return (
            f"version=1\ncluster.id={self.cluster_id}\nnode.id={self.node_id}\n"
            f"directory.id={uuid_to_text(self.directory_id)}\n"
        ).encode()


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """The identity of `directory`; None if it was never formatted. Raises `StartupError` if it cannot be understood."""
    path = f"{directory}/{files.META_PROPERTIES}"
    try:
        text = disk.read_file(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    properties = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            key, _, value = line.partition("=")
            properties[key.strip()] = value.strip()
    try:
        if properties["version"] != "1":
            raise ValueError
        return MetaProperties(
            cluster_id=properties["cluster.id"],
            node_id=int(properties["node.id"]),
            directory_id=uuid_from_text(properties["directory.id"]),
        )
    except (KeyError, ValueError):
        raise StartupError(
            f"{path} is not a version 1 file with cluster.id, node.id and directory.id: restore it, or, if nothing in "
            f"{directory} is needed, remove that directory and format it again"
        ) from None


def write_meta_properties(disk: Disk, directory: str, properties: MetaProperties) -> None:
    disk.make_dirs(directory)
    disk.write_atomically(f"{directory}/{files.META_PROPERTIES}", properties.encode())
    disk.sync_dir(directory.rpartition("/")[0] or "/")


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The marker of a clean shutdown, with the broker epoch that proves it to the controller (KIP-966)."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch in the marker; -1 if it names none, as older versions left the file empty."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if isinstance(epoch, int) else -1
