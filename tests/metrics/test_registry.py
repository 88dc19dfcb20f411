"""Instruments, the registry, and the page that Prometheus reads."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metrics.exposition import escape, metric_name, number
from ottla.metrics.instruments import Histogram, Meter, bucket_of, upper_bound
from ottla.metrics.registry import OTHER, Registry
from ottla.metrics.rows import ROWS, Kind, MetricRow

LINE = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)+\})? (-?[0-9.e+-]+|NaN|[+-]Inf)')


def test_an_empty_registry_renders_nothing() -> None:
    assert Registry().render(0.0) == ""


def test_rows_are_well_formed() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert re.fullmatch("(kafka|process)_[a-z0-9_]+", row.name), row
        assert row.help.endswith("."), row
        assert all(re.fullmatch("[a-z_]+", label) for label in row.labels)


def test_counters_and_meters() -> None:
    registry = Registry()
    bytes_in = registry.meter("kafka_server_brokertopicmetrics_bytesin", "orders")
    bytes_in.value += 100
    assert registry.meter("kafka_server_brokertopicmetrics_bytesin", "orders") is bytes_in
    registry.counter("kafka_log_logmanager_segmentsdeleted").value += 2
    assert registry.render(0.0) == (
        "# HELP kafka_server_brokertopicmetrics_bytesin_total Bytes of batches from producers.\n"
        "# TYPE kafka_server_brokertopicmetrics_bytesin_total counter\n"
        'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 100\n'
        "# HELP kafka_server_brokertopicmetrics_bytesin_rate A second, lately: Bytes of batches from producers.\n"
        "# TYPE kafka_server_brokertopicmetrics_bytesin_rate gauge\n"
        'kafka_server_brokertopicmetrics_bytesin_rate{topic="orders"} 0.0\n'
        "# HELP kafka_log_logmanager_segmentsdeleted_total Segments deleted by retention.\n"
        "# TYPE kafka_log_logmanager_segmentsdeleted_total counter\n"
        "kafka_log_logmanager_segmentsdeleted_total 2\n"
    )


def test_a_rate_follows_the_last_minutes() -> None:
    meter = Meter()
    assert meter.rate(0.0) == 0.0
    for second in range(0, 600, 10):
        meter.value += 1000
        meter.rate(second + 10.0)
    assert meter.rate(600.0) == pytest.approx(100.0, rel=0.01)
    assert meter.rate(1200.0) < 1.0


def test_gauges_are_read_at_the_scrape_only() -> None:
    registry = Registry()
    reads: list[int] = []

    def read() -> float:
        reads.append(1)
        return 7

    registry.gauge("kafka_server_replicamanager_leadercount", read)
    registry.gauges("kafka_log_log_size", lambda: [(("orders", "0"), 10), (("orders", "1"), 20.5)])
    assert not reads
    page = registry.render(0.0)
    assert len(reads) == 1
    assert "kafka_server_replicamanager_leadercount 7\n" in page
    assert 'kafka_log_log_size{topic="orders",partition="1"} 20.5\n' in page


def test_made_up_topics_share_one_series() -> None:
    registry = Registry([MetricRow("m", Kind.METER, "Help.", ("topic",), series_max=3)])
    for number_of_topic in range(100):
        registry.meter("m", f"t{number_of_topic}").value += 1
    page = registry.render(0.0)
    assert page.count("m_total{") == 4
    assert f'm_total{{topic="{OTHER}"}} 97\n' in page
    registry.remove("m", "t0")
    registry.meter("m", "t99").value += 1
    assert 'topic="t0"' not in registry.render(1.0)


def test_asking_for_the_wrong_kind_is_a_mistake() -> None:
    registry = Registry()
    with pytest.raises(AssertionError):
        registry.counter("kafka_server_brokertopicmetrics_bytesin", "orders")
    with pytest.raises(AssertionError):
        registry.meter("kafka_server_brokertopicmetrics_bytesin")
    with pytest.raises(KeyError):
        registry.counter("kafka_nope")


def test_a_duration_is_a_summary_in_milliseconds() -> None:
    registry = Registry()
    produce = registry.histogram("kafka_network_requestmetrics_totaltimems", "Produce")
    for _ in range(99):
        produce.observe(1000)
    produce.observe(500_000)
    page = registry.render(0.0)
    name = "kafka_network_requestmetrics_totaltimems"
    values = dict(re.findall(rf'{name}{{request="Produce",quantile="([0-9.]+)"}} (.+)', page))
    assert float(values["0.5"]) == pytest.approx(1.0, rel=0.125)
    assert float(values["0.99"]) == pytest.approx(1.0, rel=0.125)
    assert values["0.999"] == values["1"] == "500.0"
    assert f'{name}_count{{request="Produce"}} 100\n' in page
    assert f'{name}_sum{{request="Produce"}} 599.0\n' in page


def test_quantiles_forget_the_distant_past() -> None:
    registry = Registry()
    histogram = registry.histogram("kafka_server_eventloop_lagms")
    histogram.observe(1_000_000)
    registry.render(0.0)
    registry.render(61.0)
    histogram.observe(10)
    assert histogram.quantiles(1.0) == [1_000_000]
    registry.render(122.0)
    histogram.observe(20)
    assert histogram.quantiles(0.5, 1.0) == [10, 20]
    assert histogram.count == 3
    assert histogram.max == 20


@given(st.lists(st.integers(0, 1 << 39), min_size=1, max_size=200), st.floats(0, 1))
def test_a_quantile_is_wrong_by_an_eighth_at_most(values: list[int], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    ordered = sorted(values)
    exact = ordered[max(1, -int(-share * len(values) // 1)) - 1]
    (found,) = histogram.quantiles(share)
    assert exact <= found <= exact * 9 // 8 + 1
    assert histogram.max == max(values)


@given(st.integers(0, (1 << 40) - 1))
def test_buckets_hold_what_they_say(value: int) -> None:
    bucket = bucket_of(value)
    assert value <= upper_bound(bucket)
    assert bucket == 0 or value > upper_bound(bucket - 1)
    histogram = Histogram()
    histogram.observe(value)
    assert histogram.quantiles(0.5) == [value]


def test_absurd_durations_are_held_within_bounds() -> None:
    histogram = Histogram()
    histogram.observe(-5)
    histogram.observe(1 << 80)
    assert histogram.quantiles(0.5, 1.0) == [0, (1 << 40) - 1]


@given(st.text(), st.floats())
def test_any_label_makes_one_clean_line(label: str, value: float) -> None:
    registry = Registry()
    registry.gauge("kafka_network_socketserver_connections", lambda: value, label)
    page = registry.render(0.0)
    page.encode()
    *_, last = page.removesuffix("\n").split("\n")
    assert LINE.fullmatch(last), last


def test_escapes() -> None:
    assert escape('a"b\\c\nd') == 'a\\"b\\\\c\\nd'
    assert metric_name("org.apache.kafka.producer") == "org_apache_kafka_producer"
    assert metric_name("1é") == "_1_"
    assert [number(value) for value in (1, 2.5, float("inf"), float("nan"), True)] == ["1", "2.5", "+Inf", "NaN", "1"]


def test_nothing_is_observed_as_zero_is() -> None:
    one, other = Histogram(), Histogram()
    for value in (0, 7, 0):
        one.observe(value)
        other.observe(value) if value else other.observe_none()
    assert (one.count, one.total, one.max, one.quantiles(0.5, 0.9)) == (3, 7, 7, [0, 7])
    assert (other.count, other.total, other.max, other.quantiles(0.5, 0.9)) == (3, 7, 7, [0, 7])
