"""KRaft: who leads the metadata log, and how far it is committed.

`machine.RaftMachine` is pure. Its driver (`broker/control/raft_driver.py`) tells it facts, each a method `on_<fact>`:
what the disk held at the start, that a quorum-state is durable, that records were appended, that they were flushed. It
gets effects back (`effects.py`), and carries them out in order:

- `PersistQuorumState` first of all, and durably: the machine does nothing more in that epoch until it hears
  `on_quorum_state_persisted`. A vote or a leadership that could be forgotten is no promise.
- `AppendControlRecords` at the end of the log, in the machine's epoch.
- `HighWatermarkAdvanced`, `LeadershipEstablished`, `Resigned` go to the state machine above.

One class a role (`roles.py`). What the machine needs for a quorum of one is here; votes from others, followers and
observers add roles and facts, and change none. The forms of what it keeps on disk are in `election.py` (quorum-state),
`control_records.py` (the log) and `checkpoint.py` (snapshots).
"""
