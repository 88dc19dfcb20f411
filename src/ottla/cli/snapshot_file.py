"""The file of a snapshot: a zip with a manifest, and the batches of each partition.

    manifest.json          format, topics with configs and offsets, groups with positions
    TOPIC/PARTITION        batches of Kafka's format v2, one after the other, with the offsets that they had
Nothing is ever unpacked to a disk: members are looked up by the names that the manifest gives.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ottla.admin import configs, groups, snapshots, topics
from ottla.client.blocking import BlockingClient
from ottla.errors import Malformed, StartupError
from ottla.model import TopicPartition
from ottla.records.batch import crc_is_valid, read_header
from ottla.records.records import iterate

FORMAT = 1
_MANIFEST = "manifest.json"
_HEAD_BYTES = 61
_BATCH_BYTES_MAX = 128 << 20
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
"""What reading a zip raises; the last where it wants a password, or is packed in a way that is not known here."""

Said = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    topics: int
    partitions: int
    records: int
    groups: int
    shifted: int = 0
    """Partitions whose records could not keep their offsets."""


def save(client: BlockingClient, path: Path, names: list[str], saved_at_ms: int, say: Said) -> Sums:
    """Positions first, then records: no position is ahead of what is saved."""
    found = topics.describe_topics(client, names)
    positions = [each for each in _positions(client, set(names)) if each["offsets"]]
    new = path.with_name(f"{path.name}.new")
    described = []
    total = 0
    try:
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for topic in found:
                say(topic.name)
                partitions = []
                for each in topic.partitions:
                    key = TopicPartition(topic.name, each.partition)
                    partitions.append(_save_partition(client, file, key))
                    total += partitions[-1]["records"]
                own = configs.own_configs(client, topic.name)
                described.append({"name": topic.name, "configs": own, "partitions": partitions})
            manifest = {
                "format": FORMAT,
                "saved_at": saved_at_ms,
                "topics": described,
                "groups": positions,
            }
            file.writestr(_MANIFEST, json.dumps(manifest, indent=1))
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    count = sum(len(topic.partitions) for topic in found)
    return Sums(topics=len(found), partitions=count, records=total, groups=len(positions))


def _positions(client: BlockingClient, names: set[str]) -> Iterator[dict[str, Any]]:
    for listed in groups.list_groups(client):
        offsets = [
            {"topic": key.topic, "partition": key.partition, "offset": each.offset, "metadata": each.metadata}
            for key, each in groups.committed_offsets(client, listed.group_id).items()
            if key.topic in names
        ]
        yield {"group": listed.group_id, "offsets": offsets}


def _save_partition(client: BlockingClient, file: zipfile.ZipFile, partition: TopicPartition) -> dict[str, Any]:
    from ottla.admin.offsets import bounds_of

    (bounds,) = bounds_of(client, [partition], committed=True).values()
    records = 0
    with file.open(f"{partition.topic}/{partition.partition}", "w", force_zip64=True) as member:
        for batch in snapshots.read_batches(client, partition):
            records += sum(each.offset >= bounds.start for each in iterate(batch))
            member.write(batch)
    return {
        "partition": partition.partition,
        "start_offset": bounds.start,
        "end_offset": bounds.end,
        "records": records,
    }


class SnapshotFile:
    """A file that was saved, open. Raises `StartupError` for what is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = zipfile.ZipFile(path)
            self.manifest = json.loads(self._file.read(_MANIFEST))
            _check(self.manifest)
            if self.manifest["format"] != FORMAT:
                raise StartupError(f"{path} has format {self.manifest['format']}, and this ottla reads {FORMAT}.")
        except FileNotFoundError:
            raise StartupError(f"There is no file {path}.") from None
        except (OSError, KeyError, ValueError, TypeError, RecursionError, *_DAMAGED) as error:
            raise StartupError(f"{path} is no snapshot: {error}.") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def batches(self, topic: str, partition: int) -> Iterator[bytes]:
        try:
            with self._file.open(f"{topic}/{partition}") as member:
                while head := member.read(_HEAD_BYTES):
                    size = read_header(head).size
                    if size > _BATCH_BYTES_MAX:
                        raise Malformed(f"a batch of {size} bytes")
                    batch = head + member.read(size - len(head))
                    if len(batch) < size or not crc_is_valid(batch, 0, size):
                        raise Malformed("a batch is cut off or spoilt")
                    yield batch
        except (KeyError, Malformed, *_DAMAGED) as error:
            raise StartupError(f"{self._path} is damaged in {topic}/{partition}: {error}.") from None


def _check(manifest: Any) -> None:
    """Raises `KeyError`, `TypeError` or `ValueError` where it is not of the form that `save` writes."""
    known = set()
    for topic in manifest["topics"]:
        if [each["partition"] for each in topic["partitions"]] != list(range(len(topic["partitions"]))):
            raise ValueError(f"the partitions of {topic['name']} are not counted from 0")
        for each in topic["partitions"]:
            known.add((str(topic["name"]), int(each["partition"])))
            if not 0 <= int(each["start_offset"]) <= int(each["end_offset"]):
                raise ValueError(f"the offsets of {topic['name']} are none")
        if not all(isinstance(value, str) for value in dict(topic["configs"]).values()):
            raise ValueError(f"the configs of {topic['name']} are none")
    for group in manifest["groups"]:
        for each in group["offsets"]:
            if (each["topic"], each["partition"]) not in known or int(each["offset"]) < 0:
                raise ValueError(f"the positions of {group['group']} are in no topic of the snapshot")
            str(each["metadata"])


def restore(client: BlockingClient, file: SnapshotFile, rename: Callable[[str], str], replicas: int, say: Said) -> Sums:
    """All topics must be new: either none is there before, or nothing is done."""
    wanted = [(each, rename(str(each["name"]))) for each in file.manifest["topics"]]
    there = set(client.topics([name for _, name in wanted]))
    if there:
        raise StartupError(f"The topic {sorted(there)[0]} is there already: delete it, or restore with --rename.")
    for topic, name in wanted:
        topics.create_topic(
            client,
            name,
            partitions=len(topic["partitions"]),
            replication_factor=replicas,
            configs=topic["configs"],
        )
    restored: dict[TopicPartition, snapshots.Restored] = {}
    for topic, name in wanted:
        say(name)
        for each in topic["partitions"]:
            saved = snapshots.SavedPartition(start_offset=each["start_offset"], end_offset=each["end_offset"])
            old, new = TopicPartition(topic["name"], each["partition"]), TopicPartition(name, each["partition"])
            restored[old] = snapshots.write_batches(client, new, saved, file.batches(*old))
    for group in file.manifest["groups"]:
        offsets = {}
        for each in group["offsets"]:
            old = TopicPartition(each["topic"], each["partition"])
            position = restored[old].position(each["offset"])
            offsets[TopicPartition(rename(old.topic), old.partition)] = groups.CommittedOffset(
                offset=position, leader_epoch=-1, metadata=each["metadata"]
            )
        groups.commit_offsets(client, group["group"], offsets)
    return Sums(
        topics=len(wanted),
        partitions=len(restored),
        records=sum(each.records for each in restored.values()),
        groups=len(file.manifest["groups"]),
        shifted=sum(not each.is_exact for each in restored.values()),
    )
