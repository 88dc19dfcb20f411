"""The control plane of a node: drivers of `raft`, `controller` and `metadata`, and the broker's life in the cluster.

`control_plane.ControlPlane` is what the node builds, starts and stops. Below it:

    raft_driver              one queue and one pump: carries out what the raft machine asks for
    metadata_log, stores     the log with its snapshots, and the quorum-state
    metadata_loader          the one reader of what is committed; tells the publishers
    snapshotter              writes snapshots, and lets the log before them go
    controller_driver        the active controller's request loop, while this node leads
    channel                  the way to the active controller, in this process or not
    lifecycle                the broker: registers, is heard of, takes its leave
    controller_registration  the controller: makes itself known to clients

`format` prepares directories as kafka-storage does.
"""
