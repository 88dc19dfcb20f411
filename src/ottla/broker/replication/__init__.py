"""Replication between brokers: copying partitions from their leaders, and in-sync sets on their way to the controller.

`ReplicaFetchers` knows what to copy from whom. For each leader it keeps a few pipelines, each a connection of its own
with a fetch session (KIP-227) over which one partition after the other is brought up to date. What to make of a
leader's answer is decided by the pure `partition/follower`; here it is carried out. That is the follower's half. Of the
leader's, `isr_changes` is here; it serves followers by `fetching`, and `replica_manager` tells its machine of them.
`lacking` is of both: a replica without all that was committed does not lead, and copies what it lacks.
"""
