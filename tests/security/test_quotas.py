"""Client quotas as arithmetic: whose limit counts, how long to wait, and that the rate which results is the limit."""

from __future__ import annotations

import pytest

from ottla.metadata.quotas import CLIENT_ID, IP, USER, entity_of
from ottla.security.quotas import (
    METERS_MAX,
    AddressRates,
    MutationBucket,
    QuotaKind,
    QuotaLedger,
    QuotaTable,
    RateWindow,
)

Parts = dict[str, str | None]

PRODUCE, FETCH, REQUEST, MUTATION = (
    QuotaKind.PRODUCE,
    QuotaKind.FETCH,
    QuotaKind.REQUEST,
    QuotaKind.MUTATION,
)

IN_KAFKAS_ORDER: list[Parts] = [
    {USER: "ada", CLIENT_ID: "app"},
    {USER: "ada", CLIENT_ID: None},
    {USER: "ada"},
    {USER: None, CLIENT_ID: "app"},
    {USER: None, CLIENT_ID: None},
    {USER: None},
    {CLIENT_ID: "app"},
    {CLIENT_ID: None},
]
WHO_SHARES: list[tuple[str | None, str | None]] = [
    ("ada", "app"),
    ("ada", "app"),
    ("ada", None),
    ("ada", "app"),
    ("ada", "app"),
    ("ada", None),
    (None, "app"),
    (None, "app"),
]


def table(*limits: tuple[Parts, float], kind: str = PRODUCE) -> QuotaTable:
    return QuotaTable({entity_of(parts): {kind: rate} for parts, rate in limits})


def ledger(limits: QuotaTable, samples: int = 11, window_ms: int = 1000) -> QuotaLedger:
    made = QuotaLedger(samples=samples, window_ms=window_ms, mutation_samples=samples, mutation_window_ms=window_ms)
    made.table = limits
    return made


# Whose limit counts.


@pytest.mark.parametrize("first", range(len(IN_KAFKAS_ORDER)))
def test_the_nearest_limit_counts(first: int) -> None:
    limits = table(*((parts, float(rate + 1)) for rate, parts in enumerate(IN_KAFKAS_ORDER) if rate >= first))
    found = limits.find(PRODUCE, "ada", "app")
    assert found is not None
    assert found.rate == first + 1
    assert found.sharers == WHO_SHARES[first]


def test_a_limit_of_somebody_else_is_none() -> None:
    limits = table(({USER: "bob"}, 1.0), ({CLIENT_ID: "tool"}, 2.0), ({USER: "ada", CLIENT_ID: "tool"}, 3.0))
    assert limits.find(PRODUCE, "ada", "app") is None
    assert limits.find(FETCH, "bob", "app") is None, "each kind has its own"


def test_a_nearer_entity_with_a_limit_of_another_kind_hides_nothing() -> None:
    limits = QuotaTable({entity_of({USER: "ada"}): {FETCH: 5.0}, entity_of({CLIENT_ID: None}): {PRODUCE: 7.0}})
    found = limits.find(PRODUCE, "ada", "app")
    assert found is not None
    assert found.rate == 7.0


def test_a_client_without_an_id_has_the_default_of_clients() -> None:
    found = table(({CLIENT_ID: None}, 4.0)).find(PRODUCE, "ANONYMOUS", "")
    assert found is not None
    assert found.rate == 4.0


def test_limits_of_addresses_limit_no_requests() -> None:
    assert not QuotaTable({}).limits_clients
    assert not table(({IP: "10.0.0.1"}, 5.0), kind="connection_creation_rate").limits_clients


def test_sharers_share_and_others_do_not() -> None:
    book = ledger(table(({USER: "ada"}, 100.0), ({CLIENT_ID: None}, 100.0)))
    assert book.charge(PRODUCE, "ada", "one", 1000, 0) == 0
    assert book.charge(PRODUCE, "ada", "two", 1000, 0) > 0, "one user, whatever the client"
    assert book.charge(PRODUCE, "bob", "one", 1000, 0) == 0
    assert book.charge(PRODUCE, "eve", "one", 1000, 0) > 0, "one client, whatever the user"
    assert book.charge(PRODUCE, "bob", "two", 1000, 0) == 0


# How long to wait.


def test_a_quiet_client_may_have_all_but_one_sample_at_once() -> None:
    window = RateWindow(11, 1000)
    window.record(1000, 0)
    assert window.wait_ms(100, 0) == 0
    window.record(100, 0)
    assert window.wait_ms(100, 0) == 1000, "a tenth too much, of a window of ten seconds"


def test_samples_leave_the_window() -> None:
    window = RateWindow(2, 1000)
    window.record(500, 0)
    assert window.wait_ms(100, 500) > 0
    assert window.wait_ms(100, 1999) > 0
    assert window.wait_ms(100, 2000) == 0
    assert window.is_empty


def test_a_window_of_one_sample_is_one_sample_long() -> None:
    window = RateWindow(1, 1000)
    window.record(100, 0)
    assert window.wait_ms(100, 0) == 0
    window.record(1, 0)
    assert window.wait_ms(100, 0) == 10


def test_nobody_waits_longer_than_a_sample_for_time_spent() -> None:
    book = ledger(table(({CLIENT_ID: None}, 1.0), kind=REQUEST))
    assert book.charge(REQUEST, "ada", "app", 1000, 0) == 1000


def test_a_limit_that_changes_counts_at_once_and_what_was_used_stays_used() -> None:
    book = ledger(table(({USER: "ada"}, 1000.0)))
    assert book.charge(PRODUCE, "ada", "app", 5000, 0) == 0
    book.table = table(({USER: "ada"}, 100.0))
    assert book.charge(PRODUCE, "ada", "app", 0, 0) > 0
    book.table = QuotaTable({})
    assert book.charge(PRODUCE, "ada", "app", 1 << 30, 0) == 0


def test_what_is_withheld_is_not_counted() -> None:
    book = ledger(table(({USER: "ada"}, 100.0), kind=FETCH))
    assert book.charge_if_within(FETCH, "ada", "app", 900, 0) == 0
    first = book.charge_if_within(FETCH, "ada", "app", 900, 0)
    assert first > 0
    assert book.charge_if_within(FETCH, "ada", "app", 900, 0) == first
    assert book.charge_if_within(FETCH, "ada", "app", 100, 0) == 0


def test_a_batch_larger_than_the_window_passes_alone() -> None:
    book = ledger(table(({USER: "ada"}, 100.0), kind=FETCH))
    assert book.room(FETCH, "ada", "app", 0) == 1000
    assert book.charge_if_within(FETCH, "ada", "app", 5000, 0) == 0
    assert book.charge_if_within(FETCH, "ada", "app", 1, 100) > 0


@pytest.mark.parametrize("rate", [500.0, 10_000.0, 1_000_000.0])
@pytest.mark.parametrize("requests_at_once", [1, 5])
def test_a_sender_that_obeys_holds_the_rate_within_a_tenth(rate: float, requests_at_once: int) -> None:
    """A greedy client that is muted as long as it is told, for ten minutes after its first burst."""
    book = ledger(table(({USER: "ada"}, rate)))
    size = rate / 7
    now_ms, sent, began_ms, wait_ms = 0.0, 0.0, 60_000.0, 0
    while now_ms < began_ms + 600_000:
        for _ in range(requests_at_once):
            wait_ms = book.charge(PRODUCE, "ada", "app", size, now_ms)
            sent += size if now_ms >= began_ms else 0
        now_ms += max(wait_ms, 1)
    assert abs(sent / 600 / rate - 1) < 0.1


@pytest.mark.parametrize("rate", [500.0, 1_000_000.0])
def test_a_reader_that_obeys_holds_the_rate_within_a_tenth(rate: float) -> None:
    book = ledger(table(({USER: "ada"}, rate), kind=FETCH))
    size = rate / 3
    now_ms, got, began_ms = 0.0, 0.0, 60_000.0
    while now_ms < began_ms + 600_000:
        wait_ms = book.charge_if_within(FETCH, "ada", "app", size, now_ms)
        if not wait_ms and now_ms >= began_ms:
            got += size
        now_ms += max(wait_ms, 1)
    assert abs(got / 600 / rate - 1) < 0.1


def test_a_reader_with_room_for_part_of_it_gets_that_part() -> None:
    """Asked for two seconds' worth at a time, in batches of a tenth of that."""
    rate, batch = 500_000.0, 100_000.0
    book = ledger(table(({USER: "ada"}, rate), kind=FETCH))
    now_ms, got, began_ms = 0.0, 0.0, 60_000.0
    while now_ms < began_ms + 600_000:
        room = book.room(FETCH, "ada", "app", now_ms)
        assert room is not None
        size = max(1, min(room, 2 * rate) // batch) * batch
        wait_ms = book.charge_if_within(FETCH, "ada", "app", size, now_ms)
        if not wait_ms and now_ms >= began_ms:
            got += size
        now_ms += max(wait_ms, 1)
    assert abs(got / 600 / rate - 1) < 0.1


def test_time_spent_holds_its_percentage_within_a_tenth() -> None:
    book = ledger(table(({USER: "ada"}, 20.0), kind=REQUEST))
    now_ms, spent_ms, began_ms = 0.0, 0.0, 60_000.0
    while now_ms < began_ms + 600_000:
        wait_ms = book.charge(REQUEST, "ada", "app", 3.0 / 1000 * 100, now_ms)  # Each request takes three milliseconds.
        spent_ms += 3 if now_ms >= began_ms else 0
        now_ms += 3 + wait_ms
    assert abs(spent_ms / 600_000 / 0.2 - 1) < 0.1


# Changes to the cluster.


def test_who_is_not_in_debt_may_take_any_number() -> None:
    book = ledger(table(({USER: "ada"}, 2.0), kind=MUTATION))
    assert book.charge_mutations("ada", "app", 100, 0, strict=True) == (True, 0)
    assert book.charge_mutations("ada", "app", 1, 0, strict=True) == (False, 39_000), "22 in the bucket, 78 owed"
    assert book.charge_mutations("ada", "app", 1, 38_999, strict=True)[0] is False
    assert book.charge_mutations("ada", "app", 1, 39_001, strict=True)[0] is True


def test_old_versions_may_always_and_wait_afterwards() -> None:
    book = ledger(table(({USER: "ada"}, 2.0), kind=MUTATION))
    assert book.charge_mutations("ada", "app", 23, 0, strict=False) == (True, 500)
    assert book.charge_mutations("ada", "app", 1, 0, strict=False) == (True, 1000)
    assert book.charge_mutations("bob", "app", 1000, 0, strict=True) == (True, 0), "nobody limits bob"


def test_changes_hold_their_rate_within_a_tenth() -> None:
    bucket = MutationBucket(11, 1000)
    now_ms, made, began_ms = 0.0, 0, 60_000.0
    while now_ms < began_ms + 600_000:
        if wait_ms := bucket.wait_ms(5.0, now_ms):
            now_ms += wait_ms
            continue
        bucket.take(3, 5.0, now_ms)
        made += 3 if now_ms >= began_ms else 0
        now_ms += 1
    assert abs(made / 600 / 5.0 - 1) < 0.1


# Addresses.


def address_rates(*limits: tuple[Parts, float]) -> AddressRates:
    rates = AddressRates()
    rates.set_rates(table(*limits, kind="connection_creation_rate"))
    return rates


def test_an_address_has_its_own_rate_or_that_of_all() -> None:
    rates = address_rates(({IP: "10.0.0.1"}, 1.0), ({IP: None}, 3.0))
    assert sum(rates.on_opened("10.0.0.1", 0) == 0 for _ in range(100)) == 10
    assert sum(rates.on_opened("10.0.0.2", 0) == 0 for _ in range(100)) == 30
    assert rates.on_opened("10.0.0.1", 0) == 1000, "one of ten too many, in a window of ten seconds"
    assert rates.on_opened("10.0.0.1", 12_000) == 0


def test_addresses_without_a_limit_are_let_in() -> None:
    rates = address_rates(({IP: "10.0.0.1"}, 1.0))
    assert not any(rates.on_opened("10.0.0.2", 0) for _ in range(1000))
    assert not address_rates().limits_any


# Memory.


@pytest.mark.slow
def test_clients_that_invent_ids_do_not_fill_the_memory() -> None:
    book = ledger(table(({CLIENT_ID: None}, 1.0)))
    rates = address_rates(({IP: None}, 1.0))
    for number in range(METERS_MAX + 500):
        book.charge(PRODUCE, "ada", f"client-{number}", 1, number)
        rates.on_opened(f"address-{number}", number)
    assert len(book._meters) == len(rates._meters) == METERS_MAX
