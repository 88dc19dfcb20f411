"""The active controller: decides what the cluster's metadata becomes, as records.

`controller.Controller` is the one door: every request is Kafka's request message and every result its response, so
that the same methods serve the node itself and what other nodes forward. A request *generates* records from the newest
state; the driver (`broker/control/controller_driver.py`) appends them, has the controller *replay* them at once
(`speculation.py`), and sends the response when they are committed. Replaying is `metadata`'s affair and the same on
every node; a manager here never changes metadata by itself.

A partition changes in one place, `partition_change`: whoever wants something of it (a broker that goes, a leader that
proposes an ISR, an operator who moves replicas, the clock) says what, and that function elects and decides the rest.
Those who want something are `leadership` (brokers come and go), `alter_partition`, `election_control`,
`reassignment_control` and `directory_control`. The other managers: `cluster_control` (brokers and controllers),
`topic_control` and `placement`, `config_control`, `feature_control`, `producer_id_control`, `scram_control`,
`acl_control`, `quota_control`. `activation` makes the first records of all, and `timed_work` what is due by the clock.
Pure: time is an argument, chance is a `Random` handed in.
"""
