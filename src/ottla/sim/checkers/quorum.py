"""Section B: the quorum of the metadata log, by the machines' own state and by what they have put on their disks."""

from __future__ import annotations

from ottla.errors import StartupError
from ottla.metadata.images import MetadataImage
from ottla.model import METADATA_TOPIC
from ottla.raft.election import QUORUM_STATE_FILE, ElectionState, decode_quorum_state
from ottla.raft.machine import RaftMachine
from ottla.raft.roles import Candidate, Leader, Unattached
from ottla.raft.voters import ReplicaKey
from ottla.sim.checkers.mirror import is_durable
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Cluster, Machine, Process
from ottla.sim.view import DATA
from ottla.sim.volume import DirNode, FileNode

DIRECTORY = f"{DATA}/{METADATA_TOPIC}-0"
QUORUM_STATE = f"{DIRECTORY}/{QUORUM_STATE_FILE}"


class _Seen:
    """One machine, as it was when last looked at."""

    __slots__ = (
        "epoch",
        "file",
        "high_watermark",
        "leader",
        "log_start",
        "process",
        "renames",
        "role",
        "stored",
        "voters_at",
        "votes",
    )

    def __init__(self) -> None:
        self.process: Process | None = None
        self.epoch = -1
        self.leader: int | None = None
        self.role: object = None
        self.high_watermark: int | None = None
        self.log_start = 0
        self.file: FileNode | None = None
        self.stored: ElectionState | None = None
        self.votes = 0
        self.renames = -1
        self.voters_at = -1
        """Where in its log the newest set of voters is."""


class QuorumChecker:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen = {machine.id: _Seen() for machine in cluster.machines.values()}
        self._leaders: dict[int, int] = {}
        """Epoch → its leader."""
        self._votes: dict[tuple[int, int], ReplicaKey] = {}
        """(voter, epoch) → whom it has voted for, on its disk."""
        self._ends: dict[int, int] = {}
        """Machine → where its metadata log ends, on the disk if it is down."""
        self._high_watermark = -1
        self._committed_epoch = -1
        """Of the newest leader that has committed anything."""
        """The highest that any leader had."""
        self._voter_sets: dict[int, tuple[int, ...]] = {}
        self.damaged: dict[int, None] = {}
        """Machines whose metadata log is not what they wrote."""
        self.elections = 0
        self.snapshot_loads = 0
        self.voter_changes = 0

    def after_step(self, machine: Machine) -> None:
        process = machine.process
        control = process.node._control if process is not None else None
        if process is None or control is None:
            return
        seen = self._seen[machine.id]
        raft, log = control.raft.machine, control.raft.log
        if seen.process is not process:
            seen.process, seen.role, seen.epoch = process, None, -1
            seen.high_watermark = None
            seen.log_start = log.log_start_offset
        role = raft.role
        if role is not seen.role or raft.epoch != seen.epoch:
            self._on_role(machine, seen, raft)
        if isinstance(role, Candidate) and len(role.votes.granting) != seen.votes:
            seen.votes = len(role.votes.granting)
            self._check_votes(machine, role.epoch, role.votes.granting)
        if raft.leader_id != seen.leader:
            seen.leader = raft.leader_id
            if seen.leader is not None:
                self._on_leader(machine, raft.epoch, seen.leader)
        before, self._ends[machine.id] = self._ends.get(machine.id, -1), log.log_end_offset
        if raft.high_watermark != seen.high_watermark:
            self._on_high_watermark(machine, seen, raft)
        if raft.voters.latest_offset != seen.voters_at:
            seen.voters_at = raft.voters.latest_offset
            if isinstance(role, Leader) and role.high_watermark is not None:
                self._check_voter_changes(machine, raft, role.high_watermark)
        if log.log_start_offset != seen.log_start:
            self._on_log_start(machine, seen, log.log_start_offset, loaded=log.log_start_offset > before)
        if machine.volume.renames != seen.renames:
            seen.renames = machine.volume.renames
            self._check_stored(machine, seen)

    def check_sound(self, machine: Machine) -> None:
        """E16, of the metadata: a node whose log is damaged has told others that it keeps what is gone, and does not
        serve."""
        if machine.id in self.damaged:
            raise Violation("E16", f"{machine.name} serves, though its metadata log is damaged")

    def _on_role(self, machine: Machine, seen: _Seen, raft: RaftMachine) -> None:
        if raft.epoch < seen.epoch:
            raise Violation("B3", f"{machine.name} was in epoch {seen.epoch}, and is in {raft.epoch}")
        role = raft.role
        seen.role, seen.epoch, seen.votes = role, raft.epoch, 1
        if isinstance(role, Unattached) and raft.high_watermark is None and role.voted is not None:
            return
        if isinstance(role, Leader):
            self.elections += 1
            self._on_leader(machine, raft.epoch, machine.id)
            self._cluster.trace.note(machine.name, f"leads the quorum in epoch {raft.epoch}")
            self._check_votes(machine, role.epoch, role.granted)
            # One whose removal is not committed may be elected to commit it.
            if not raft.may_run:
                raise Violation("B17", f"{machine.name} leads in epoch {raft.epoch}, and is no voter")

    def _on_leader(self, machine: Machine, epoch: int, leader: int) -> None:
        known = self._leaders.setdefault(epoch, leader)
        if known != leader:
            raise Violation("B1", f"epoch {epoch}: {known} was its leader, and {machine.name} says {leader}")

    def _check_votes(self, machine: Machine, epoch: int, granting: tuple[int, ...]) -> None:
        """B2: a vote that has arrived is on the disk of whoever gave it."""
        for voter in granting:
            other = self._cluster.machines.get(voter)
            if other is None or voter == machine.id:
                continue
            stored = self._durable(other)
            if stored is None or stored.epoch < epoch:
                raise Violation(
                    "B2", f"{other.name} has voted for {machine.name} in epoch {epoch}, and its disk does not know"
                )
            if stored.epoch == epoch and (stored.voted is None or stored.voted.id != machine.id):
                raise Violation(
                    "B2", f"{other.name} has voted for {machine.name} in epoch {epoch}; its disk says {stored}"
                )

    def _durable(self, machine: Machine) -> ElectionState | None:
        """What would be found after a power loss."""
        node = machine.volume.find(QUORUM_STATE)
        if not isinstance(node, FileNode) or not is_durable(machine.volume, QUORUM_STATE):
            return None
        return _decode(bytes(node.platter))

    def _check_stored(self, machine: Machine, seen: _Seen) -> None:
        """B2 and B3, of the file: epochs rise, and a vote in one stays."""
        node = machine.volume.find(QUORUM_STATE)
        if node is seen.file or not isinstance(node, FileNode):
            return
        seen.file = node
        state = _decode(bytes(node.content))
        if state is None:
            return
        before = seen.stored
        seen.stored = state
        if before is not None and state.epoch < before.epoch:
            raise Violation("B3", f"{machine.name} had stored epoch {before.epoch}, and now {state.epoch}")
        if state.voted is not None:
            known = self._votes.setdefault((machine.id, state.epoch), state.voted)
            if known != state.voted:
                raise Violation(
                    "B2", f"{machine.name} voted for {known} in epoch {state.epoch}, and then {state.voted}"
                )
        if state.leader_id is not None:
            self._on_leader(machine, state.epoch, state.leader_id)

    def _on_high_watermark(self, machine: Machine, seen: _Seen, raft: RaftMachine) -> None:
        before, now = seen.high_watermark, raft.high_watermark
        seen.high_watermark = now
        role = raft.role
        if now is None:
            return
        if before is not None and now < before:
            raise Violation("B7", f"{machine.name}: the quorum's high watermark fell from {before} to {now}")
        # A leader may know from a snapshot what was committed before it; what it commits itself is its role's.
        if not isinstance(role, Leader) or role.high_watermark is None:
            return
        now = role.high_watermark
        # One that was deposed and does not know it may still hear, late, how far the others were in its own epoch.
        if role.epoch >= self._committed_epoch:
            if now < self._high_watermark:
                raise Violation(
                    "B7", f"{machine.name} leads with high watermark {now}; {self._high_watermark} was committed"
                )
            self._committed_epoch = role.epoch
        self._high_watermark = max(now, self._high_watermark)
        if now <= role.epoch_start_offset:
            raise Violation(
                "B8", f"{machine.name} has committed up to {now}, and its epoch began at {role.epoch_start_offset}"
            )
        self._check_majority(machine, raft, now)
        self._check_voter_changes(machine, raft, now)

    def _check_majority(self, machine: Machine, raft: RaftMachine, high_watermark: int) -> None:
        voters = raft.voters.latest
        have = [voter for voter in voters.ids if self._ends.get(voter, -1) >= high_watermark]
        if len(have) < voters.majority:
            raise Violation(
                "B6", f"{machine.name} has committed up to {high_watermark}, but of {voters.ids} only {have} hold that"
            )

    def _check_voter_changes(self, machine: Machine, raft: RaftMachine, high_watermark: int) -> None:
        """B13: one change of the voters at a time."""
        uncommitted = [offset for offset, _ in raft.voters._entries if offset >= high_watermark]
        if len(uncommitted) > 1:
            raise Violation("B13", f"{machine.name} has uncommitted voter sets at {uncommitted}")
        for offset, voters in raft.voters._entries:
            if offset < high_watermark and offset not in self._voter_sets:
                ids = voters.ids
                if self._voter_sets and ids != list(self._voter_sets.values())[-1]:
                    self.voter_changes += 1
                    self._cluster.trace.note(machine.name, f"the voters are {list(ids)}")
                self._voter_sets[offset] = ids

    def _on_log_start(self, machine: Machine, seen: _Seen, start: int, *, loaded: bool) -> None:
        """B10: a log that does not begin at 0 begins with a snapshot: its own, or one that was `loaded`."""
        if loaded:
            self.snapshot_loads += 1
            self._cluster.trace.note(machine.name, f"loads a snapshot that ends at {start}")
            if isinstance(seen.role, Leader):
                raise Violation("B11", f"{machine.name} leads, and has loaded a snapshot that ends at {start}")
        seen.log_start = start
        directory = machine.volume.find(DIRECTORY)
        assert isinstance(directory, DirNode)
        prefix = f"{start:020d}-"
        if start and not any(name.startswith(prefix) and name.endswith(".checkpoint") for name in directory.entries):
            raise Violation("B10", f"{machine.name}: the metadata log begins at {start}, and there is no such snapshot")

    def forget(self, machine: Machine) -> None:
        """The disk was lost: what comes back is somebody else (B12)."""
        self._seen[machine.id] = _Seen()
        self.damaged.pop(machine.id, None)
        self._ends.pop(machine.id, None)
        for key in [key for key in self._votes if key[0] == machine.id]:
            del self._votes[key]

    # At the end.

    def at_end(self) -> None:
        """B21: whoever has read as far has read the same."""
        images: dict[int, tuple[str, MetadataImage]] = {}
        for machine in self._cluster.machines.values():
            node = machine.node
            if node is None or node._control is None:
                continue
            image = node._control.image
            other = images.setdefault(image.last_offset, (machine.name, image))
            if other[1] is not image and not _same(other[1], image):
                raise Violation("B21", f"{other[0]} and {machine.name} have read up to {image.last_offset} and differ")


def _same(one: object, other: object) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("features", "cluster", "topics", "configs", "next_producer_id", "client_quotas", "acls")
    )


def _decode(data: bytes) -> ElectionState | None:
    try:
        return decode_quorum_state(data, QUORUM_STATE)
    except StartupError:
        return None
