"""`/transactions`: who writes in transactions, which are open, which hang; and ending them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import Request
from nicegui import ui

from ottla.admin.transactions import (
    OpenProducer,
    Transaction,
    abort_hanging,
    describe_transaction,
    fence,
    find_hanging,
    list_transactions,
)
from ottla.client.blocking import BlockingClient
from ottla.console import addresses
from ottla.console.console import Console
from ottla.console.markup import Child, Markup, tag
from ottla.console.pages.actions import on_row, row_button
from ottla.console.pages.frame import (
    RESPONSE_TIMEOUT_S,
    confirm,
    filter_form,
    frame,
    query_of,
    refused,
    section,
    show,
)
from ottla.console.poller import PARTITIONS_MAX
from ottla.console.tables import Column, table
from ottla.console.units import count, duration, moment
from ottla.errors import KafkaError
from ottla.model import TopicPartition
from ottla.runtime.clock import SystemClock

DESCRIBED_MAX = 200
OPEN = "Ongoing"
STATES = {
    OPEN: "open",
    "PrepareCommit": "committing",
    "PrepareAbort": "aborting",
    "CompleteCommit": "committed",
    "CompleteAbort": "aborted",
    "PrepareEpochFence": "fencing",
}
"""In words; others are words already."""
SILENT_MIN = 15
"""Minutes: a transaction may last as long by default (`transaction.max.timeout.ms`)."""


def register(console: Console) -> None:
    @ui.page("/transactions", response_timeout=RESPONSE_TIMEOUT_S)
    async def transactions(request: Request) -> None:
        query = query_of(request)
        look = await console.poller.first()
        with frame(console, "Transactions", "/transactions"):
            show(filter_form(query, "Transactional id contains"))
            try:
                found, left_out = await console.workers.ask(lambda client: find(client, query.get("q", "")))
            except KafkaError as error:
                refused(console, error)
                return
            _show_open(console, found, left_out, query)
            section("Transactions that hang")
            partitions = [
                TopicPartition(name, each.partition)
                for name, topic in (look.topics if look is not None else {}).items()
                for each in topic.partitions
            ]
            await _show_hanging(console, partitions, query)


def find(client: BlockingClient, wanted: str) -> tuple[list[Transaction], int]:
    """Those whose id contains `wanted`, open ones first, and how many more there are."""
    listed = [each for each in list_transactions(client) if wanted.casefold() in each.transactional_id.casefold()]
    listed.sort(key=lambda each: (each.state != OPEN, each.transactional_id))
    found = []
    for each in listed[:DESCRIBED_MAX]:
        try:
            found.append(describe_transaction(client, each.transactional_id))
        except KafkaError:
            continue  # It expired meanwhile.
    return found, max(0, len(listed) - DESCRIBED_MAX)


def _show_open(console: Console, found: Sequence[Transaction], left_out: int, query: Mapping[str, str]) -> None:
    now_ms = SystemClock().wall_ms()
    by_id = {each.transactional_id: each for each in found}
    if console.may_change:
        on_row("abort-transaction", by_id, lambda each: _abort(console, each))
    if query.get("q"):
        empty = "No transactional id is called so."
    else:
        empty = "Nobody writes in transactions: a producer with a transactional.id appears here once it begins."
    show(
        table(
            found,
            _columns(now_ms, console.may_change),
            key=lambda each: each.transactional_id,
            caption="Transactions",
            query=query,
            empty=tag("p", empty),
        ),
        tag("p", f"{count(left_out)} more are not shown: filter for them.", class_="quiet") if left_out else None,
    )


def _columns(now_ms: int, may_change: bool) -> list[Column[Transaction]]:
    def age_ms(each: Transaction) -> int | None:
        """None of what has ended, though its beginning is remembered."""
        is_open = each.started_ms is not None and not each.state.startswith(("Complete", "Empty"))
        return max(0, now_ms - (each.started_ms or 0)) if is_open else None

    def state(each: Transaction) -> Child:
        late = each.state == OPEN and (age_ms(each) or 0) > each.timeout_ms
        kind = " bad" if late else " good" if each.state == OPEN else ""
        return tag("span", STATES.get(each.state, each.state.lower()), class_=f"badge{kind}")

    columns = [
        Column[Transaction](
            title="transactional id", cell=lambda each: each.transactional_id, sort=lambda each: each.transactional_id
        ),
        Column(title="state", cell=state, sort=lambda each: each.state),
        Column(
            title="open for", cell=lambda each: duration(age_ms(each)), sort=lambda each: age_ms(each) or 0, number=True
        ),
        Column(
            title="may take",
            cell=lambda each: duration(each.timeout_ms),
            sort=lambda each: each.timeout_ms,
            number=True,
        ),
        Column(title="producer id", cell=lambda each: str(each.producer_id), number=True),
        Column(title="epoch", cell=lambda each: count(each.producer_epoch), number=True),
        Column(title="partitions", cell=lambda each: _partitions(each.partitions)),
        Column(title="coordinator", cell=lambda each: f"node {each.coordinator}"),
    ]
    if may_change:
        columns.append(
            Column(
                title="",
                cell=lambda each: (
                    row_button(
                        "Abort",
                        "abort-transaction",
                        each.transactional_id,
                        label=f"Abort the transaction of {each.transactional_id}",
                    )
                    if each.state == OPEN
                    else None
                ),
            )
        )
    return columns


def _partitions(keys: Sequence[TopicPartition]) -> Child:
    if not keys:
        return tag("span", "none", class_="quiet")
    return ", ".join(f"{key.topic}-{key.partition}" for key in keys)


def _abort(console: Console, transaction: Transaction) -> None:
    async def abort() -> None:
        console.check_may_change()
        await console.workers.ask(lambda client: fence(client, transaction.transactional_id))
        ui.navigate.reload()

    said = (
        f"What {transaction.transactional_id} has written since it began is never seen by readers of committed "
        "records, and its producer is turned away from then on."
    )
    confirm(f"Abort the transaction of {transaction.transactional_id}?", tag("p", said), "Abort it", abort)


# Those that no coordinator will end.


def silent_min(query: Mapping[str, str]) -> int:
    text = query.get("silent", "")
    return int(text) if text.isdecimal() and len(text) < 9 else SILENT_MIN


async def _show_hanging(console: Console, partitions: Sequence[TopicPartition], query: Mapping[str, str]) -> None:
    minutes = silent_min(query)
    asked = partitions[:PARTITIONS_MAX]
    try:
        found = await console.workers.ask(
            lambda client: find_hanging(client, asked, now_ms=SystemClock().wall_ms(), silent_ms=minutes * 60_000)
        )
    except KafkaError as error:
        refused(console, error)
        return
    by_row = {_row(each): each for each in found}
    if console.may_change:
        on_row("abort-hanging", by_row, lambda each: _abort_hanging(console, each))
    left_out = len(partitions) - len(asked)
    show(
        tag(
            "p",
            "A partition waits for their end, and no coordinator will write it: readers of committed records stand "
            "still there.",
        ),
        _silence_form(query, minutes),
        table(
            found,
            _hanging_columns(console.may_change),
            key=_row,
            caption="Transactions that hang",
            query={},
            empty=tag("p", f"None hangs that was silent for {count(minutes, 'minute')}."),
        ),
        tag("p", f"{count(left_out, 'more partition')} not asked.", class_="quiet") if left_out else None,
    )


def _row(each: OpenProducer) -> str:
    return f"{each.producer_id} {each.producer_epoch} {each.partition} {each.topic}"


def _silence_form(query: Mapping[str, str], minutes: int) -> Markup:
    kept = [tag("input", type="hidden", name=name, value=value) for name, value in query.items() if name != "silent"]
    return tag(
        "form",
        kept,
        tag("label", "Not written to for, in minutes", for_="silent"),
        tag("input", id="silent", name="silent", type="number", min="0", value=minutes),
        tag("button", "Look", type="submit"),
        class_="filter",
    )


def _hanging_columns(may_change: bool) -> list[Column[OpenProducer]]:
    columns = [
        Column[OpenProducer](
            title="partition",
            cell=lambda each: tag(
                "a", f"{each.topic}-{each.partition}", href=addresses.partition(each.topic, each.partition)
            ),
        ),
        Column(title="producer id", cell=lambda each: str(each.producer_id), number=True),
        Column(title="epoch", cell=lambda each: count(each.producer_epoch), number=True),
        Column(title="from offset", cell=lambda each: count(each.transaction_start_offset), number=True),
        Column(title="last written", cell=lambda each: moment(each.last_timestamp_ms)),
    ]
    if may_change:
        columns.append(
            Column(
                title="",
                cell=lambda each: row_button(
                    "Abort",
                    "abort-hanging",
                    _row(each),
                    label=f"Abort the transaction in {each.topic}-{each.partition}",
                ),
            )
        )
    return columns


def _abort_hanging(console: Console, hanging: OpenProducer) -> None:
    place = f"{hanging.topic}-{hanging.partition}"

    async def abort() -> None:
        console.check_may_change()
        await console.workers.ask(lambda client: abort_hanging(client, hanging))
        ui.navigate.reload()

    said = (
        f"A marker in {place} says that producer {hanging.producer_id} took back what it wrote from offset "
        f"{count(hanging.transaction_start_offset)} on. Readers of committed records go on behind it."
    )
    confirm(f"Abort the transaction in {place}?", tag("p", said), "Abort it", abort)
