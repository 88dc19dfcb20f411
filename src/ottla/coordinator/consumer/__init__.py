"""KIP-848's consumer groups: the coordinator decides who has which partitions, and each member gets there by itself.

Theory of operation. A group has an epoch that rises with every change of who and what; a *target* (who shall have which
partitions) worked out for an epoch; and members, each with an epoch of its own. Members are never stopped all at once:
a heartbeat tells a member what to give up, then what it gets, and a partition is given only when its owner has said
that it gave it up.

    member.py            one member: what it is, what it holds
    group.py             one group: records in, questions answered
    reconciliation.py    one step of a member towards its target
    assignors/           targets: uniform and range, with Kafka's very results (hash_order.py)
    target.py            what the assignor is told, and the records of what it answers
    engine.py            what requests and timers are made of
    heartbeat.py         ConsumerGroupHeartbeat
    classic_members.py   members that speak the classic protocol
    conversion.py        classic group ↔ consumer group, online
    metadata_hash.py     whether the topics are still those of the target

Driven, as part of a `GroupShard`, by `broker/coordinators`.
"""

from ottla.coordinator.consumer.consumer_groups import ConsumerGroups
from ottla.coordinator.consumer.heartbeat import Sender

__all__ = ["ConsumerGroups", "Sender"]
