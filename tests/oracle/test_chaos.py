"""Apache Kafka's own producer among the clients that nodes die under; the long form is `make chaos CHAOS=--java`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import chaos
from tests.cluster.harness import running_cluster

pytestmark = pytest.mark.oracle


def test_javas_producer_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "nodes") as cluster:
        outcome = chaos.run(cluster, kills=2, pauses=2, seed=5, java=tmp_path)
    assert outcome.complaints == []
    assert outcome.refused == 0
    assert outcome.acknowledged > 1000
