"""A7: nothing that was committed is lost everywhere, whoever has lost what.

Asked whenever somebody has less than before. A replica that runs and holds the last batch that was committed holds all
of them (A5 is checked as its log grows); only where there is none such are the disks read, also of those who are down.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.errors import Malformed
from ottla.log import files
from ottla.log.checkpoints import decode_partition_metadata
from ottla.model import TopicPartition, Uuid
from ottla.records import crc_is_valid, read_header
from ottla.sim.checkers.ledger import Ledger
from ottla.sim.checkers.mirror import Batch, Mirror
from ottla.sim.checkers.violation import Violation
from ottla.sim.view import LOG_DIRS
from ottla.sim.volume import DirNode, FileNode, Volume


def check_kept(
    place: TopicPartition, topic_id: Uuid, ledger: Ledger, running: Iterable[Mirror], volumes: Iterable[Volume]
) -> None:
    """`running` are the sound replicas of processes that run; `volumes` are all disks."""
    if not ledger.order or ledger.order[-1].next <= ledger.start:
        return
    last = ledger.order[-1]
    for mirror in running:
        at = mirror.index_of(last.base)
        if at < len(mirror.batches) and mirror.batches[at].same(last):
            return
    held: set[tuple[int, int, int]] = set()
    for volume in volumes:
        held |= _on_disk(volume, place, topic_id)
    lost = next((each for each in ledger.order if each.next > ledger.start and _key(each) not in held), None)
    if lost is not None:
        raise Violation("A7", f"{place}: {lost} was committed, and is on no disk any more")


def _key(batch: Batch) -> tuple[int, int, int]:
    return batch.base, batch.epoch, batch.crc


def _on_disk(volume: Volume, place: TopicPartition, topic_id: Uuid) -> set[tuple[int, int, int]]:
    """Every batch of the partition that this disk holds whole."""
    found: set[tuple[int, int, int]] = set()
    for path in LOG_DIRS:
        directory = volume.find(f"{path}/{place}")
        identity = directory.entries.get(files.PARTITION_METADATA) if isinstance(directory, DirNode) else None
        if not isinstance(directory, DirNode) or not isinstance(identity, FileNode):
            continue
        if decode_partition_metadata(bytes(identity.content)) != topic_id:
            continue
        for name, node in directory.entries.items():
            if name.endswith(files.LOG) and isinstance(node, FileNode):
                found |= _in_segment(node.content)
    return found


def _in_segment(content: bytearray) -> set[tuple[int, int, int]]:
    found: set[tuple[int, int, int]] = set()
    position = 0
    while position < len(content):
        try:
            header = read_header(content, position)
        except Malformed:
            break
        if crc_is_valid(content, position, header.size):
            found.add((header.base_offset, header.leader_epoch, header.crc))
        position += header.size
    return found
