"""Committed offsets: the part of a group's shard that remembers how far each group has come.

`Offsets` is driven by `coordinator/group_shard.py` as the parts of groups are: requests *generate* records
(`OffsetCommit`, and tombstones of it), `replay` applies them, and nothing else does. What it holds:

    codec      a record's bytes, by hand
    table      group → topic → partition → the record that is in force, as bytes
    state      the table, and beside it what open transactions have staged (KIP-447)
    offsets    the part itself; its chapters are commits, fetches, deletion, gone_topics and expiry
    listing    groups of every kind as administrators see them; simple_group, those that have offsets and nothing else

A transaction's offsets are staged under its producer id until its marker comes. Then, if it committed, each takes
effect, unless the offset in force was committed by a record that lies *behind* it in the log: so a replay gives the
same answer whether or not compaction has removed the older of the two.
"""

from ottla.coordinator.offsets.offsets import Offsets

__all__ = ["Offsets"]
