"""The control plane of a node: drivers of `raft`, `controller` and `metadata`, and the broker's life in the cluster.

`control_plane.ControlPlane` is what the node builds, starts and stops. Below it `raft_driver` owns the metadata log and
carries out what the raft machine asks for; `controller_driver` is the active controller's request loop; `lifecycle` is
the broker's side, which speaks to the controller through a `channel` alone, be it in this process or not.
`format` prepares directories as kafka-storage does.
"""
