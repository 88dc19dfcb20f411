"""The server: listeners, connections, dispatch, one file an API, and the drivers of the pure machines below.

What every request goes through, and what holds it together, is here: `node`, `services`, `connection`, `dispatch`,
`replica_manager`, `purgatory`, `publisher`, `forwarding`. The rest has a room of its own:

    api           one module an API
    access        who may do what
    bounds        how much of the node anybody may take
    doors         how others get in: TLS and SASL
    fetching      Fetch: sessions, reading, cold files
    replication   copying from leaders, and in-sync sets
    transactions  of the partitions that they write to
    coordinators  drives groups and transactions
    control       drives raft and the controller; the broker's life in the cluster
    gateway       a listener that stands for the cluster
    upkeep        of logs and disks
    monitoring    metrics, pages, traces
"""
