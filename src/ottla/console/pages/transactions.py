"""`/transactions`: who writes in transactions, and which are open."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from nicegui import ui

from ottla.admin.transactions import Transaction, describe_transaction, list_transactions
from ottla.client.blocking import BlockingClient
from ottla.console.console import Console
from ottla.console.markup import Child, join, tag
from ottla.console.pages.frame import RESPONSE_TIMEOUT_S, filter_form, frame, notice, query_of, sentence, show
from ottla.console.tables import Column, table
from ottla.console.units import count, duration
from ottla.errors import KafkaError
from ottla.runtime.clock import SystemClock

DESCRIBED_MAX = 200
OPEN = "Ongoing"


def register(console: Console) -> None:
    @ui.page("/transactions", response_timeout=RESPONSE_TIMEOUT_S)
    async def transactions(request: Request) -> None:
        query = query_of(request)
        with frame(console, "Transactions", "/transactions"):
            show(filter_form(query, "Transactional id contains"))
            try:
                found, left_out = await console.workers.ask(lambda client: find(client, query.get("q", "")))
            except KafkaError as error:
                notice(sentence(error), bad=True)
                return
            _table(found, left_out, query)


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


def _table(found: list[Transaction], left_out: int, query: Mapping[str, str]) -> None:
    now_ms = SystemClock().wall_ms()

    def age_ms(each: Transaction) -> int | None:
        return None if each.started_ms is None else max(0, now_ms - each.started_ms)

    def state(each: Transaction) -> Child:
        late = each.state == OPEN and (age_ms(each) or 0) > each.timeout_ms
        kind = " bad" if late else " good" if each.state == OPEN else ""
        return tag("span", "open" if each.state == OPEN else each.state.lower(), class_=f"badge{kind}")

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
        Column[Transaction](
            title="partitions",
            cell=lambda each: ", ".join(f"{key.topic}-{key.partition}" for key in each.partitions) or "none",
        ),
        Column(title="coordinator", cell=lambda each: f"node {each.coordinator}"),
    ]
    empty = tag("p", "Nobody writes in transactions: a producer with a transactional.id appears here once it begins.")
    show(
        table(found, columns, key=lambda each: each.transactional_id, caption="Transactions", query=query, empty=empty),
        tag("p", f"{count(left_out)} more are not shown: filter for them.", class_="quiet") if left_out else join(),
    )
