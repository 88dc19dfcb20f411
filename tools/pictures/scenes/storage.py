"""What is on the disk of a node: segments and their indexes, and a log before and after compaction."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from ottla.model import TopicPartition
from ottla.records import BatchBuilder, Record, batches, iterate
from ottla.sim import view
from ottla.sim.cluster import Machine
from ottla.sim.producing import produce
from ottla.sim.view import DATA
from tools.pictures.cells import CELL, Cell, offsets, row
from tools.pictures.stage import Stage, stage
from tools.pictures.svg import COLOURS, Drawing

WIDTH = 860
_WRITES = [
    *(("ann", "1"), ("bob", "1"), ("cat", "1"), ("ann", "2"), ("dan", "1"), ("bob", "2"), ("ann", "3"), ("cat", "2")),
    *(("dan", ""), ("ann", "4"), ("bob", "3"), ("ann", "5"), ("cat", "3"), ("bob", "4"), ("ann", "6"), ("cat", "4")),
]
"""Keys and values, in the order in which they come; no value deletes its key."""


class Batch(NamedTuple):
    base: int
    next: int
    position: int
    size: int


class StoredSegment(NamedTuple):
    base: int
    batches: list[Batch]
    records: list[Record]
    entries: list[tuple[int, int]]
    """(offset, position) of each entry of its index."""

    @property
    def size(self) -> int:
        return sum(batch.size for batch in self.batches)


def stored(machine: Machine, place: TopicPartition) -> list[StoredSegment]:
    """The segments in a partition's directory: batches and records from the files, indexes as the node has them, since
    it writes those later."""
    hosted = view.hosted(machine, place)
    assert hosted is not None
    kept = hosted.log._segments
    indexes = {segment.base_offset: segment.offset_index(kept.cache) for segment in kept}
    directory = f"{DATA}/{place.topic}-{place.partition}/"
    contents = {
        path.removeprefix(directory): bytes(node.content)
        for path, node in machine.volume.files()
        if path.startswith(directory)
    }
    found: list[StoredSegment] = []
    for name in sorted(name for name in contents if name.endswith(".log")):
        base, position = int(name.removesuffix(".log")), 0
        segment = StoredSegment(base, [], [], [])
        for header, data in batches(contents[name]):
            segment.batches.append(Batch(header.base_offset, header.last_offset + 1, position, len(data)))
            segment.records.extend(iterate(data))
            position += len(data)
        for relative, at in zip(indexes[base].relative_offsets, indexes[base].positions, strict=True):
            segment.entries.append((base + relative, at))
        found.append(segment)
    return found


def finding_an_offset() -> str:
    """Three segments; the index of one of them says where to begin to look for an offset."""
    topic = {"internal.segment.bytes": "1500", "index.interval.bytes": "300"}
    with stage(latency_s=0.002, topic=topic) as shown:
        random = Random(7)
        while len(segments := stored(shown.leader, shown.place)) < 3 or len(segments[2].batches) < 5:
            values = [b"x" * random.randrange(20, 90) for _ in range(random.randrange(1, 4))]
            _write(shown, shown.place, [(None, value) for value in values])
    segments = segments[:3]
    middle = segments[1]
    wanted = middle.batches[-2].base
    entry = max((each for each in middle.entries if each[0] <= wanted), default=(middle.base, 0))
    draw = Drawing(
        WIDTH,
        372,
        title=f"Where is offset {wanted}?",
        description="Three segments of a log with their batches and index entries, and the way to one offset.",
    )
    left, width, gap = 24, 812, 16
    scale = (width - gap * (len(segments) - 1)) / sum(segment.size for segment in segments)
    places: dict[int, float] = {}
    x: float = left
    for segment in segments:
        places[segment.base] = x
        named = segment is middle
        draw.text(x, 92, f"{segment.base:020d}.log"[-14:], kind="small bold" if named else "small soft")
        for batch in segment.batches:
            sought = batch.base <= wanted < batch.next
            kind = "two-pale" if sought else "one-pale" if named else "gone"
            says = f"offsets {batch.base} to {batch.next - 1}, {batch.size} bytes at {batch.position}"
            at, wide = x + batch.position * scale, batch.size * scale
            draw.rectangle(at, 100, wide - 1.5, 40, kind=kind, rounded=2, says=says)
            if wide > 20:
                draw.text(at + wide / 2, 124, str(batch.base), kind="small", anchor="middle")
        x += segment.size * scale + gap
    begin = places[middle.base]
    draw.text(begin, 206, f"{middle.base:020d}.index"[-16:], kind="small bold")
    for at, (offset, position) in enumerate(middle.entries):
        chosen = (offset, position) == entry
        y = 214 + 22 * at
        draw.rectangle(begin, y, 150, 20, kind="two-pale" if chosen else "one-pale", rounded=2)
        draw.text(begin + 8, y + 14, f"offset {offset} → byte {position}", kind="small")
        if chosen:
            target = begin + position * scale
            draw.path([(begin + 150, y + 10), (target + 4, y + 10), (target + 4, 152)], kind="line two-line")
            draw.arrow(target + 4, 156, target + 4, 142, kind="two")
            sought_at = next(batch for batch in middle.batches if batch.base <= wanted < batch.next)
            over = begin + (sought_at.position + sought_at.size / 2) * scale
            draw.arrow(target + 6, 156, over, 156, kind="two")
            draw.arrow(over, 156, over, 142, kind="two")
    steps = (
        "1. File names are offsets: the last that is not larger.",
        "2. The index: the last entry that is not larger.",
        "3. From there, header by header: 61 bytes each, no record is read.",
    )
    for at, words in enumerate(steps):
        draw.text(24, 312 + 18 * at, words, kind="small")
    return draw.render()


def compaction() -> str:
    """A compacted topic as it was written, and after the cleaner has been over it."""
    policy = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "320",
        "min.insync.replicas": "2",
        "delete.retention.ms": "3600000",
    }
    settings = {
        "log.cleaner.enable": "true",
        "log.cleaner.backoff.ms": "15000",
        "log.cleaner.min.cleanable.ratio": "0.05",
    }
    with stage(latency_s=0.002, compacted=policy, settings=settings) as shown:
        place = shown.simulation.compacted[0]
        for key, value in _WRITES:
            _write(shown, place, [(key.encode(), value.encode() or None)])
        machine = shown.cluster.machines[shown.client.leaders[place].node]
        before = stored(machine, place)
        shown.until(lambda: sum(len(each.records) for each in stored(machine, place)) < len(_WRITES))
        shown.passes(2.0)
        after = stored(machine, place)
    draw = Drawing(
        WIDTH,
        310,
        title="Compaction keeps the last value of each key, at the offset that it had",
        description="Records of a compacted log before and after the cleaner ran; those of the last segment stay.",
    )
    keys = sorted({record.key for segment in before for record in segment.records if record.key is not None})
    kinds = {key: f"{COLOURS[at % len(COLOURS)]}-pale" for at, key in enumerate(keys)}
    width = 50
    for y, words, segments in ((80, "as it was written", before), (196, "after compaction", after)):
        draw.text(24, y - 12, words, kind="bold")
        left = {record.offset: record for segment in segments for record in segment.records}
        numbers = range(len(_WRITES))
        cells = [_cell(left.get(offset), kinds) for offset in numbers]
        row(draw, 24, y, cells, width=width)
        offsets(draw, 24, y + CELL + 12, numbers, width=width)
        for segment in segments[1:]:
            draw.line(24 + width * segment.base, y - 6, 24 + width * segment.base, y + CELL + 18, kind="moment")
    for at, words in enumerate(
        (
            "Dotted lines: where a segment begins. The last one is being written, and is left alone.",
            "dan=∅ is a tombstone: it says that dan is deleted, and goes later.",
        )
    ):
        draw.text(24, 272 + 18 * at, words, kind="soft small")
    return draw.render()


def _cell(record: Record | None, kinds: dict[bytes, str]) -> Cell:
    if record is None or record.key is None:
        return Cell("", "gone open")
    value = "∅" if record.value is None else record.value.decode()
    return Cell(f"{record.key.decode()}={value}", kinds[record.key])


def _write(shown: Stage, place: TopicPartition, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    """One batch, and wait until it is committed."""
    builder = BatchBuilder()
    for key, value in records:
        builder.append(shown.client.loop.clock.wall_ms(), key, value)
    batch = bytes(builder.build())
    code, _ = shown.do(produce(shown.client, place, batch, purpose="scene", acks=-1, timeout_s=5.0))
    assert code == 0
