"""A replica that knows that it lacks committed records: when it may lead, and when it has them again (E16).

It knows because its log ended, at a start, before the high watermark that its disk remembers, because the log was gone,
or because a leader read a batch that is not what was written. The controller cannot see that: by its books this replica
may be in sync, or the one that led last and is elected for that (KIP-966). So it is told, by KIP-858's word for a
replica whose directory is lost, and it remembers while we do not.

    whole ── a start finds the log cut below its high watermark, or gone, or the metadata names it as lost ──▶ lacking
    whole, leads ── a batch is damaged, and others are in sync ──▶ lacking: we do not lead from then on
    lacking, another leads ──▶ it is copied from; the log is cut at the damage first, once the controller knows
    lacking, nobody else leads, or damaged and not cut yet ──▶ the controller is told, at a start before it may elect us
    lacking ── has copied all that it knew of, or is in sync again ──▶ whole, and the controller is told where it is
    lacking, known ── elected all the same: whoever did that, and knew, would rather go on without ──▶ leads, whole

A replica that is the only one has nobody to copy from, and leads what it has. Pure; `broker/replication/lacking`
asks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the metadata says of our replica of a partition."""

    alone: bool
    """Are there no other replicas?"""
    led_by_another: bool
    in_isr: bool
    in_elr: bool
    others_in_isr: bool
    known_to_lack: bool
    """Does the controller hold the replica for lost?"""
    can_be_told: bool
    """Is the metadata new enough to say so?"""
    isr_may_be_empty: bool
    """Has the cluster eligible leader replicas (KIP-966)? If not, the last of a set stays in it, with what it lost."""

    @property
    def may_lead_lacking(self) -> bool:
        """May we lead without what is missing? Only where it was decided so, or nobody could decide anything else."""
        return self.alone or self.known_to_lack or not self.can_be_told

    @property
    def may_lead_damaged(self) -> bool:
        """May we lead on with a damaged batch in a log that is not cut? While nobody else could, yes: whoever is past
        the damage can still copy from us, and be in sync."""
        return self.may_lead_lacking or not self.others_in_isr

    @property
    def is_to_be_told(self) -> bool:
        """Is the controller to hold a replica that lacks records for lost? While another leads, only if it does so
        already: then it is no candidate, and will be one again by way of the in-sync set."""
        return self.damage_is_to_be_told and (self.known_to_lack or not self.led_by_another)

    @property
    def damage_is_to_be_told(self) -> bool:
        """The same of a replica with a damaged batch in a log that is not cut: whoever leads, for it is cut only when
        the controller knows, and by its books it may be in sync."""
        return not self.alone and self.can_be_told

    @property
    def is_in_sync_again(self) -> bool:
        """Has a leader found that a replica which lacked records has all of them? Whoever is said to lack something
        leaves both sets in the same moment, and none of a former self stays in them."""
        return self.in_elr or (self.in_isr and (self.led_by_another or self.isr_may_be_empty))
