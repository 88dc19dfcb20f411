"""Apache Kafka's own clients among those that nodes die under; the long form is `make chaos CHAOS=--java`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import chaos
from tests.cluster.harness import running_cluster

pytestmark = [pytest.mark.oracle, pytest.mark.long]


def test_javas_clients_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Producers that are idempotent and not, and consumers."""
    with running_cluster(tmp_path / "nodes") as cluster:
        outcome = chaos.run(cluster, kills=2, pauses=2, seed=5, java=tmp_path)
    assert outcome.complaints == []
    assert outcome.refused == 0
    assert outcome.acknowledged > 1000
