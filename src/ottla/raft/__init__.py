"""KRaft: who leads the metadata log, and how far it is committed.

`machine.RaftMachine` is pure. Its driver (`broker/control/raft_driver.py`) tells it facts, each a method `on_<fact>`,
and gets effects back (`effects.py`). All effects go into one queue and are carried out strictly in order, those of
later facts after those of earlier ones:

- `PersistQuorumState` is a promise. Nothing behind it in the queue happens before it is durable. Answers to requests
  are effects as well, so no vote leaves that could be forgotten, and no leader acts that could lead its epoch twice.
- `SendRequest` is owed an answer (`on_response`) or the news that none will come (`on_send_failed`).
- `Respond` and its kin answer a request, which may have waited; `RespondWithRecords` and `RespondWithSnapshot` leave it
  to the driver to put the bytes in.
- `AppendControlRecords`, `AppendFetched`, `TruncateTo`, `InstallSnapshot` change the log; each is owed the fact that it
  is done. While the log is changed on a leader's behalf the machine neither fetches nor runs for office.
- `HighWatermarkAdvanced`, `LeadershipEstablished`, `Resigned`, `LeaderChanged` go to the state machine above.

Time comes in with every fact, and `next_deadline_ms` says when `on_timer` is due if nothing happens before.

`quorum.py` holds what the replica is, and every change of it; `roles.py` and `leader.py` are what it can be. The rest
works on the quorum: `answering.py` on requests, `hearing.py` on responses, `polling.py` when time has passed, and
`voter_changes.py` on the quorum itself (KIP-853). `log_view.py` is what is seen of the log. The forms of what is kept
on disk are in `election.py` (quorum-state), `control_records.py` (the log) and `checkpoint.py` (snapshots).
"""
