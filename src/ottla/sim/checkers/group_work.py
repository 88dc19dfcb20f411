"""What groups come to in the end: all partitions shared out, and nothing made into two."""

from __future__ import annotations

from ottla.model import TopicPartition
from ottla.sim.checkers.violation import Violation
from ottla.sim.history import History


def check_processed(history: History, expired: set[str]) -> None:
    """At most once: no record was made into two. (That none was passed over is not looked at.)"""
    visible = {read.value for reads in history.final_committed.values() for read in reads}
    made: dict[tuple[str, TopicPartition, int], bytes] = {}
    for commit in history.commits:
        transaction, group_id = commit.transaction, commit.group_id
        if transaction is None or not transaction.sources or group_id in expired:
            continue
        written = [value for send in transaction.sends for value in send.values]
        for source, value in zip(transaction.sources, written, strict=False):
            if value in visible:
                other = made.setdefault((group_id, *source), value)
                if other != value:
                    raise Violation("D22", f"{group_id} made what is at {source} into {other!r}, and into {value!r}")


def unmet(groups: dict[str, list[tuple[str, bool, set[TopicPartition]]]], places: list[TopicPartition]) -> list[str]:
    """L9: who is in a group, whether each has settled, and what it has."""
    missing: list[str] = []
    for group_id, members in groups.items():
        unsettled = [name for name, settled, _ in members if not settled]
        if unsettled:
            missing.append(f"L9: {', '.join(unsettled)} of {group_id} are not settled")
        owned = sorted(place for _, _, held in members for place in held)
        if owned != sorted(places):
            missing.append(f"L9: {group_id} has {[str(place) for place in owned]}")
    return missing
