"""The classic group protocol: members meet in a *join* phase, their leader assigns in a *sync* phase, then all beat.

    Empty ──join──► PreparingRebalance ──all are here, or time is up──► CompletingRebalance ──leader's plan──► Stable
      ▲                │       ▲ ▲                                            │                                  │
      └─nobody is left─┘       │ └──── somebody joins, leaves or is lost ─────┘                                  │
                               └──────── somebody joins, leaves or is lost ──────────────────────────────────────┘

A request that must wait for others (JoinGroup for the end of the join phase, SyncGroup for the leader's plan) is parked
under the token it came with, and answered by an `Answer` effect of a later outcome.

What is *hard* and what is *soft*. One record, GroupMetadata, says which generation a group is in, who its members are
and what each was given. It is written when the leader's plan arrives, when a static member takes the place of its
predecessor without a rebalance, when a group is made and when it becomes empty. Everything else (who waits, which
rebalance is under way, the members that came since) is soft: it is lost when the partition moves, and the members find
that out from their next request and begin again. As in Kafka, the soft state is the one that requests see; the
record follows it. A new leader begins with what the last record says.

- `group.py`: one group, its members and states, and what it answers to who asks whether something is allowed.
- `rebalance.py`: the two phases, and the timers that bound them.
- `joining.py`: what becomes of a JoinGroup: new members, those who come again, static ones that are back.
- `classic_groups.py`: the requests, and the records of all groups of one partition.
- `records.py`: a group as a GroupMetadata record, and back.
"""

from ottla.coordinator.classic.classic_groups import ClassicGroups
from ottla.coordinator.classic.joining import Joiner

__all__ = ["ClassicGroups", "Joiner"]
