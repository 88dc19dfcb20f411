"""Drives coordinators: state machines whose partitions this node leads (`ottla.coordinator`).

`runtime.py` is what handlers see: one instance a kind of coordinator, which finds the shard of a group or of a
transactional id. `served.py` is one shard in one leadership: it takes outcomes, gathers their records into batches
(`batches.py`), and lets answers leave when those are committed. `loading.py` brings a shard up from its log.
`known_commits.py` lets plain commits, which are many and alike, take a shorter way.
"""
