"""What the metadata log's directory holds beside the log: the quorum-state file and the snapshots.

All methods block and may raise `DiskError`; while a node serves they are called through `Offload`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.raft.checkpoint import PART_SUFFIX, Checkpoint, SnapshotId, decode_checkpoint, parse_file_name
from ottla.raft.election import QUORUM_STATE_FILE, ElectionState, decode_quorum_state, encode_quorum_state
from ottla.runtime.seams import Disk


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
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def list(self) -> list[SnapshotId]:
        """The snapshots that are complete, oldest first."""
        return sorted(snapshot for name in self._disk.list(self._directory) if (snapshot := parse_file_name(name)))

    def remove_parts(self) -> None:
        """Those that a crash left unfinished."""
        for name in self._disk.list(self._directory):
            if name.endswith(PART_SUFFIX):
                self._disk.remove(f"{self._directory}/{name}")

    def read(self, snapshot: SnapshotId) -> Checkpoint:
        """Raises `Malformed`."""
        path = f"{self._directory}/{snapshot.file_name}"
        return decode_checkpoint(self._disk.read_file(path), path)

    def size(self, snapshot: SnapshotId) -> int:
        return self._disk.file_size(f"{self._directory}/{snapshot.file_name}")

    def write(self, snapshot: SnapshotId, batches: Iterable[bytes | bytearray]) -> None:
        """The name appears when the whole is durable, and not before."""
        path = f"{self._directory}/{snapshot.file_name}"
        part = f"{path}.part"
        self._disk.remove(part)
        file = self._disk.open(part, create=True)
        try:
            position = 0
            for batch in batches:
                file.write(position, batch)
                position += len(batch)
            file.sync()
        finally:
            file.close()
        self._disk.rename(part, path)
        self._disk.sync_dir(self._directory)

    def remove(self, snapshot: SnapshotId) -> None:
        self._disk.remove(f"{self._directory}/{snapshot.file_name}")
