"""What happens on the stage, and the drawing of it: a function a picture."""

from __future__ import annotations

from collections.abc import Callable

from tools.pictures.scenes.coordinators import a_group_shares, a_transaction
from tools.pictures.scenes.quorum import a_split_vote, an_election
from tools.pictures.scenes.replication import in_and_out_of_sync, records_are_committed, tails_are_cut
from tools.pictures.scenes.storage import compaction, finding_an_offset

SCENES: dict[str, Callable[[], str]] = {
    "committed": records_are_committed,
    "in-sync": in_and_out_of_sync,
    "truncation": tails_are_cut,
    "election": an_election,
    "split-vote": a_split_vote,
    "transaction": a_transaction,
    "group": a_group_shares,
    "lookup": finding_an_offset,
    "compaction": compaction,
}
"""By the name of the file."""
