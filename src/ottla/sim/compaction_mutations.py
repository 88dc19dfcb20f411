"""Historic bugs of compaction, as `mutations` has those of the rest."""

from __future__ import annotations

from typing import Any

from ottla.sim.mutation import Mutation, Patches


def _compaction_past_stable(patches: Patches) -> None:
    """All but the active segment is compacted, committed or not."""
    from ottla.log.cleaner import choosing

    patches.replace(
        choosing, "_first_uncleanable_offset", lambda log, first_dirty, now_ms: log._segments[-1].base_offset
    )


def _tombstones_go_at_once(patches: Patches) -> None:
    """The first pass that could remove a tombstone gives readers no time to see it."""
    from ottla.log.cleaner.task import CleaningTask

    patches.replace(CleaningTask, "new_horizon", property(lambda self: 0))


def _aborted_values_supersede(patches: Patches) -> None:
    """The map of keys counts records of aborted transactions, and what they would have replaced is lost."""
    from ottla.log.cleaner import cleaning
    from ottla.log.cleaner.transactions import CleanedTransactions

    before = cleaning._Pass.__dict__["_map_segment"]

    def map_segment(self: Any, segment: Any, transactions: Any) -> Any:
        return before(self, segment, CleanedTransactions(()))

    patches.replace(cleaning._Pass, "_map_segment", map_segment)


def _producers_compacted_away(patches: Patches) -> None:
    """The last batch of a producer may go like any other."""
    from dataclasses import replace

    from ottla.log.cleaner import cleaning

    before = cleaning._Pass.__dict__["__init__"]

    def init(self: Any, disk: Any, task: Any, apart: Any) -> None:
        before(self, disk, replace(task, last_of_producers={}), apart)

    patches.replace(cleaning._Pass, "__init__", init)


COMPACTION_MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        name="compaction-past-stable",
        what="compaction does not stop at the last stable offset",
        breaks=("E12", "E10", "A4", "A1", "D5", "BUG"),
        apply=_compaction_past_stable,
        with_groups=True,
        with_compaction=True,
    ),
    Mutation(
        name="tombstones-go-at-once",
        what="a tombstone goes before readers had the time to see it",
        breaks=("E11",),
        apply=_tombstones_go_at_once,
        with_compaction=True,
    ),
    Mutation(
        name="aborted-values-supersede",
        what="a value is compacted away because an aborted transaction wrote its key again",
        breaks=("E10", "C8"),
        apply=_aborted_values_supersede,
        with_groups=True,
        with_compaction=True,
    ),
    Mutation(
        name="producers-compacted-away",
        what="compaction takes the last batch of a producer, by which its next one is judged",
        breaks=("E14", "D2"),
        apply=_producers_compacted_away,
        with_groups=True,
        with_compaction=True,
    ),
)
