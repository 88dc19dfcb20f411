"""Copying partitions from their leaders: the follower's half of replication.

`ReplicaFetchers` knows what to copy from whom. For each leader it keeps a few pipelines, each a connection of its own
with a fetch session (KIP-227) over which one partition after the other is brought up to date. What to make of a
leader's answer is decided by the pure `partition/follower`; here it is carried out.
"""
