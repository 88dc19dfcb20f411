"""Where replicas go: never twice on a broker, spread over racks, spread over brokers."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.placement import UsableBroker, place_replicas
from ottla.errors import ErrorCode, KafkaError


def brokers(count: int, racks: int = 0, fenced: frozenset[int] = frozenset()) -> list[UsableBroker]:
    return [UsableBroker(n, f"rack{n % racks}" if racks else None, n in fenced) for n in range(count)]


@given(
    st.integers(1, 9),
    st.integers(0, 4),
    st.integers(1, 6),
    st.integers(1, 40),
    st.sets(st.integers(0, 8)),
    st.randoms(use_true_random=False),
)
def test_the_three_aims(count: int, racks: int, factor: int, partitions: int, fenced: set[int], random: Random) -> None:
    usable = brokers(count, racks, frozenset(fenced))
    alive = {broker.broker_id for broker in usable if not broker.fenced}
    if factor > count or not alive:
        with pytest.raises(KafkaError) as refusal:
            place_replicas(usable, partitions=partitions, replication_factor=factor, random=random)
        assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    rack_of = {broker.broker_id: broker.rack for broker in usable}
    sizes = Counter(rack_of.values())
    placements = place_replicas(usable, partitions=partitions, replication_factor=factor, random=random)
    assert len(placements) == partitions
    for replicas in placements:
        assert len(set(replicas)) == factor
        assert replicas[0] in alive, "a fenced broker never leads"
        used = Counter(rack_of[replica] for replica in replicas)
        for rack, held in used.items():
            # A rack holds two more than another only when the other has no brokers left.
            assert all(held <= used[other] + 1 or used[other] == sizes[other] for other in sizes if other != rack)


@pytest.mark.parametrize(("count", "racks"), [(3, 0), (5, 0), (6, 3), (9, 3)])
def test_leaders_and_replicas_are_spread_over_the_brokers(count: int, racks: int) -> None:
    placements = place_replicas(brokers(count, racks), partitions=count * 12, replication_factor=3, random=Random(3))
    leaders = Counter(replicas[0] for replicas in placements)
    held = Counter(replica for replicas in placements for replica in replicas)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    assert max(held.values()) - min(held.values()) <= 0.15 * 36


def test_pairs_of_brokers_vary() -> None:
    placements = place_replicas(brokers(6), partitions=60, replication_factor=2, random=Random(1))
    assert len(set(placements)) == 30, "every ordered pair of six brokers"


def test_small_topics_begin_on_different_brokers() -> None:
    random = Random(5)
    first = Counter(
        place_replicas(brokers(3), partitions=1, replication_factor=1, random=random)[0][0] for _ in range(300)
    )
    assert min(first.values()) > 60


def test_fenced_brokers_are_used_when_others_do_not_suffice() -> None:
    placements = place_replicas(
        brokers(3, fenced=frozenset({2})), partitions=10, replication_factor=2, random=Random(1)
    )
    assert all(2 not in replicas for replicas in placements)
    placements = place_replicas(
        brokers(3, fenced=frozenset({2})), partitions=10, replication_factor=3, random=Random(1)
    )
    assert all(2 in replicas[1:] for replicas in placements)
