"""What the metadata log's directory holds beside the log: the quorum-state file and the snapshots.

All methods that touch the disk block and may raise `DiskError`; while a node serves they are called through `Offload`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.errors import Malformed
from ottla.raft.checkpoint import PART_SUFFIX, Checkpoint, SnapshotId, decode_checkpoint, parse_file_name
from ottla.raft.election import QUORUM_STATE_FILE, ElectionState, decode_quorum_state, encode_quorum_state
from ottla.runtime.seams import Buffer, Disk


class QuorumStore:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{QUORUM_STATE_FILE}"

    def read(self) -> ElectionState | None:
        try:
            data = self._disk.read_file(self._path)
        except FileNotFoundError:
            return None
        return decode_quorum_state(data, self._path)

    def write(self, state: ElectionState, *, kraft_version: int, voter_ids: tuple[int, ...]) -> None:
        """Durable when it returns, and never torn."""
        data = encode_quorum_state(state, kraft_version=kraft_version, voter_ids=voter_ids)
        self._disk.write_atomically(self._path, data)


class SnapshotStore:
    """Invariant: a file under a snapshot's own name is complete and durable; until then it is a part file."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.sizes: dict[SnapshotId, int] = {}
        """The complete snapshots with their sizes, oldest first. Changed on the event loop alone."""

    def scan(self) -> None:
        """See what is there, and remove what a crash left unfinished."""
        self.sizes = {}
        for name in self._disk.list(self._directory):
            if name.endswith(PART_SUFFIX):
                self._disk.remove(f"{self._directory}/{name}")
            elif (snapshot := parse_file_name(name)) is not None:
                self.sizes[snapshot] = self._disk.file_size(f"{self._directory}/{name}")

    def on_added(self, snapshot: SnapshotId, size: int) -> None:
        self.sizes = dict(sorted([*self.sizes.items(), (snapshot, size)]))

    def on_removed(self, snapshot: SnapshotId) -> None:
        self.sizes.pop(snapshot, None)

    def forget_before(self, offset: int) -> list[SnapshotId]:
        """The log begins at `offset`: the snapshots that end before it serve nobody, and are to be removed."""
        old = [snapshot for snapshot in self.sizes if snapshot.end_offset < offset]
        for snapshot in old:
            self.on_removed(snapshot)
        return old

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self._directory}/{snapshot.file_name}"

    def _part(self, snapshot: SnapshotId) -> str:
        return f"{self._path(snapshot)}.part"

    def read(self, snapshot: SnapshotId) -> Checkpoint:
        """Raises `Malformed`."""
        path = self._path(snapshot)
        return decode_checkpoint(self._disk.read_file(path), path)

    def read_bytes(self, snapshot: SnapshotId, position: int, size: int) -> bytes:
        file = self._disk.open(self._path(snapshot))
        try:
            return file.read(position, size)
        finally:
            file.close()

    def write(self, snapshot: SnapshotId, batches: Iterable[bytes | bytearray]) -> int:
        """The name appears when the whole is durable, and not before. How many bytes it came to."""
        self._disk.remove(self._part(snapshot))
        position = 0
        file = self._disk.open(self._part(snapshot), create=True)
        try:
            for batch in batches:
                file.write(position, batch)
                position += len(batch)
            file.sync()
        finally:
            file.close()
        self._finish(snapshot)
        return position

    def write_part(self, snapshot: SnapshotId, position: int, data: Buffer) -> None:
        """Some bytes of a snapshot that is being fetched; those at the beginning begin it anew."""
        if position == 0:
            self._disk.remove(self._part(snapshot))
        file = self._disk.open(self._part(snapshot), create=True)
        try:
            file.write(position, data)
        finally:
            file.close()

    def complete(self, snapshot: SnapshotId) -> tuple[Checkpoint, int]:
        """All parts were written: check the whole, and only then give it its name. Its size comes with it.

        Raises `Malformed` if it is damaged; then nothing of it is left.
        """
        part = self._part(snapshot)
        if not self._disk.exists(part):
            return self.read(snapshot), self._disk.file_size(self._path(snapshot))
        data = self._disk.read_file(part)
        try:
            checkpoint = decode_checkpoint(data, part)
        except Malformed:
            self._disk.remove(part)
            raise
        file = self._disk.open(part)
        try:
            file.sync()
        finally:
            file.close()
        self._finish(snapshot)
        return checkpoint, len(data)

    def _finish(self, snapshot: SnapshotId) -> None:
        self._disk.rename(self._part(snapshot), self._path(snapshot))
        self._disk.sync_dir(self._directory)

    def remove(self, snapshot: SnapshotId) -> None:
        self._disk.remove(self._path(snapshot))
