"""`ottla txn`: transactions, those that hang, and ending them."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.admin import topics, transactions
from ottla.cli import complete
from ottla.cli.output import plural
from ottla.cli.session import Session, command, confirm, group
from ottla.cli.times import now_ms, parse_duration, show_moment
from ottla.errors import StartupError
from ottla.model import TopicPartition

app = group("Transactions: look at them, find those that hang, end them.")

Id = Annotated[str, typer.Argument(show_default=False, autocompletion=complete.transactional_ids)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@command(app, "list", examples=["ottla txn list", "ottla txn list --open"])
def list_transactions(
    session: Session, open_: Annotated[bool, typer.Option("--open", help="Only those that have not ended.")] = False
) -> None:
    """List transactional ids with their states."""
    with session.client() as client:
        found = transactions.list_transactions(client)
    rows = [
        {
            "transactional_id": each.transactional_id,
            "state": each.state,
            "producer_id": each.producer_id,
            "coordinator": each.coordinator,
        }
        for each in found
        if not open_ or each.state in ("Ongoing", "PrepareCommit", "PrepareAbort")
    ]
    columns = {"TRANSACTIONAL ID": "transactional_id", "STATE": "state", "PRODUCER": "producer_id"}
    session.out.rows(rows, columns | {"COORDINATOR": "coordinator"}, empty="There are no transactions.")


@command(app, "describe", examples=["ottla txn describe payments-1"])
def describe(session: Session, transactional_id: Id) -> None:
    """Show one transactional id: its producer, and what its transaction has written to."""
    with session.client() as client:
        found = transactions.describe_transaction(client, transactional_id)
    item = {
        "transactional_id": transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator": found.coordinator,
        "timeout_ms": found.timeout_ms,
        "started": found.started_ms,
        "partitions": [str(each) for each in found.partitions],
    }
    lines = [
        f"{transactional_id}  {found.state}, producer {found.producer_id} in epoch {found.producer_epoch}",
        f"coordinator {found.coordinator}, started {show_moment(found.started_ms)}, may last {found.timeout_ms} ms",
        *(f"  {each}" for each in found.partitions),
    ]
    session.out.item(item, "\n".join(lines))


@command(app, "hanging", examples=["ottla txn hanging", "ottla txn hanging orders --silent 1h --abort"])
def hanging(
    session: Session,
    names: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="All if not given.")] = None,
    silent: Annotated[str, typer.Option(help="Not written to for so long.")] = "15m",
    abort: Annotated[bool, typer.Option("--abort", help="Write the ends that nobody else will write.")] = False,
    yes: Yes = False,
) -> None:
    """Find transactions that partitions wait for and no coordinator will end."""
    with session.client() as client:
        partitions = [
            TopicPartition(each.topic, each.partition)
            for topic in topics.list_topics(client, names or None)
            for each in topic.partitions
        ]
        found = transactions.find_hanging(client, partitions, now_ms=now_ms(), silent_ms=parse_duration(silent))
        if abort and found:
            confirm(f"This aborts {plural(len(found), 'transaction')}.", yes=yes)
            for each in found:
                transactions.abort_hanging(client, each)
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "producer_id": each.producer_id,
            "start_offset": each.transaction_start_offset,
            "last_written": show_moment(each.last_timestamp_ms),
            "aborted": abort,
        }
        for each in found
    ]
    columns = {"TOPIC": "topic", "PARTITION": "partition", "PRODUCER": "producer_id", "FROM": "start_offset"}
    session.out.rows(rows, columns | {"LAST WRITTEN": "last_written"}, empty="No transaction hangs.")


@command(app, "abort", examples=["ottla txn abort payments-1"])
def abort(session: Session, transactional_id: Id, yes: Yes = False) -> None:
    """End a transaction by taking over its id: its producer is turned away from then on."""
    confirm(f"This aborts what {transactional_id} has open, and fences its producer.", yes=yes)
    with session.client() as client:
        before = transactions.describe_transaction(client, transactional_id)
        if before.state not in ("Ongoing", "PrepareAbort"):
            raise StartupError(f"{transactional_id} has nothing open: its state is {before.state}.")
        transactions.fence(client, transactional_id)
    item = {"transactional_id": transactional_id, "aborted": True}
    session.out.item(item, f"transaction of {transactional_id} aborted")
