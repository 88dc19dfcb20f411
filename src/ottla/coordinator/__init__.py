"""Groups, offsets and transactions: state machines whose every decision is a record on a partition.

Pure: no I/O, no clock, no async. One *shard* (`shard.py`) is the state of all groups, or of all transactional ids, that
one partition of `__consumer_offsets` or `__transaction_state` holds. `broker/coordinators` drives it:

    a request ─► shard method(…, now_ms) ─► Outcome: records, a response, effects
                                             │ 1. each record is replayed into the shard at once (speculation)
                                             │ 2. the records are appended, as one batch, to the partition
                                             │ 3. the next request may begin: it sees the newest state
                                             ▼
                                    the partition's high watermark passes the records ─► the response leaves

State that records carry lives in `timeline.py`'s maps, and changes in `replay` alone, so that a failed append is undone
by the timeline and not by anybody's care, and so that a new leader that replays the partition has the very same state.
What records do not carry (who waits, whose timer runs) is soft: it is lost with the leadership, and found again by
`take_up` and `on_loaded`.
"""
