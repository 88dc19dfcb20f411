"""What the console's pages are made of: text stays text, numbers say their unit, filters find, pictures are true."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from ottla.admin.acls import Acl
from ottla.admin.cluster import Broker, Cluster, Quorum, QuorumReplica
from ottla.admin.log_dirs import LogDirectory
from ottla.console import addresses, filters
from ottla.console.browsing import BadQuery, Query, cursor_text, parse_time
from ottla.console.chart import chart
from ottla.console.decoding import Decoder, Schema, encode, parse_schema
from ottla.console.health import findings
from ottla.console.history import History, Point
from ottla.console.markup import join, tag
from ottla.console.nodes import parse_metrics
from ottla.console.pages.acls import in_words, wanted_acls
from ottla.console.pages.brokers import page as brokers_page
from ottla.console.pages.schemas import difference, topic_of
from ottla.console.pages.transactions import silent_min
from ottla.console.picture import Window, describe, panel, picture
from ottla.console.poller import Look
from ottla.console.reading import SeenRecord
from ottla.console.record_view import record_view
from ottla.console.registry import Version
from ottla.console.replication import PartitionState, combine
from ottla.console.tables import Column, table
from ottla.console.units import count, duration, moment, rate, size
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.records.records import Record
from ottla.schemas import avro, avro_values
from ottla.schemas.framing import prefix

SCRIPT = "<script>alert('x')</script>\"&"
PLAIN = Decoder(lambda schema_id: None)


def test_text_never_becomes_markup() -> None:
    assert tag("b", SCRIPT) == "<b>&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;&amp;</b>"
    assert '"' not in tag("a", href=SCRIPT).removeprefix('<a href="').removesuffix('"></a>')
    assert join(tag("i", 1), None, ["<", tag("br")]) == "<i>1</i>&lt;<br/>"


def test_a_record_with_script_in_all_its_parts_is_shown_as_text() -> None:
    data = SCRIPT.encode()
    seen = SeenRecord(0, Record(7, 0, data, data, ((SCRIPT, data),)))
    shown = record_view("orders", seen, PLAIN)
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 6


def test_half_a_character_is_shown_and_breaks_no_page() -> None:
    """JSON can say it, and UTF-8, which pages are made of, cannot."""
    seen = SeenRecord(0, Record(7, 0, b'"\\ud800"', b'{"a": "\\ud800"}', ()))
    shown = record_view("orders", seen, PLAIN)
    assert b"{&quot;a&quot;: &quot;\\ud800&quot;}" in shown.encode()
    assert tag("b", "x\udc00", title="\ud800").encode() == '<b title="\ufffd">x\ufffd</b>'.encode()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (count(1, "record"), "1 record"),
        (count(12_345, "record"), "12,345 records"),
        (count(None, "record"), "–"),
        (size(1), "1 byte"),
        (size(1536), "1.5 KiB"),
        (size(5 * 1024**3), "5.0 GiB"),
        (rate(0.25), "0.2 records/s"),
        (rate(2048, "bytes"), "2.0 KiB/s"),
        (duration(3.21), "3.2 ms"),
        (duration(90_000), "90.0 s"),
        (duration(86_400_000 * 3), "3 days"),
        (moment(1_794_790_000_123), "2026-11-16 00:46:40.123 UTC"),
        (moment(1 << 62), f"{1 << 62} ms"),
    ],
)
def test_every_number_says_its_unit(said: str, expected: str) -> None:
    assert said == expected


def test_a_history_forgets_and_a_rate_never_falls_below_zero() -> None:
    history = History(moments_max=3)
    for second, value in enumerate((0, 100, 300, 0)):
        history.add(second, {"end": value})
    assert history.series("end") == [Point(1, 100), Point(2, 300), Point(3, 0)]
    assert history.rates("end") == [Point(2, 200), Point(3, 0)]
    assert history.rate("end") == 0
    assert history.rate("another") is None


def candidate(key: bytes | None, value: bytes | None) -> filters.Candidate:
    return filters.Candidate(
        partition=2,
        offset=17,
        key=PLAIN.decode(key),
        value=PLAIN.decode(value),
        headers=(("Trace", b"abc"),),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("LAMP", True),
        ("chair", False),
        ("-chair lamp", True),
        ("-lamp", False),
        ('"a lamp"', True),
        ("key:customer-7", True),
        ("value:customer-7", False),
        ("header:trace", True),
        ("header:trace=ABC", True),
        ("header:trace=x", False),
        ("partition:2 offset:17", True),
        ("offset:18", False),
        ("value.amount>10", True),
        ("value.amount>=10.5 value.amount<=10.5", True),
        ("value.amount<10", False),
        ("value.amount=ten", False),
        ("value.item=a", False),
        ('value.item="a lamp"', True),
        ("value.tags.1=y", True),
        ("value.paid=true", True),
        ("value.paid!=true", False),
        ("value.missing=1", False),
        ("/l.mp/", True),
        ("/^nothing$/", False),
    ],
)
def test_filters(text: str, expected: bool) -> None:
    value = json.dumps({"item": "a lamp", "amount": 10.5, "tags": ["x", "y"], "paid": True}).encode()
    test = filters.parse(text)
    assert (test is None or test(candidate(b"customer-7", value))) is expected


@pytest.mark.parametrize(
    "text", ["/(/", "offset:many", "partition:" + "9" * 5000, " ".join("abcdefghijklmnopqrstuvwxyz")]
)
def test_a_bad_filter_is_told_in_a_sentence(text: str) -> None:
    with pytest.raises(filters.BadFilter, match=r"\.$"):
        filters.parse(text)


def test_bytes_are_shown_as_what_they_are() -> None:
    parsed = avro.parse('{"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "long"]}]}')
    decoder = Decoder(lambda schema_id: Schema(schema_id=3, type="AVRO", as_avro=parsed) if schema_id == 3 else None)
    framed = prefix(3) + avro_values.encode(parsed, {"n": -70_000})
    shown = decoder.decode(framed)
    assert (shown.kind, shown.value) == ("avro, schema 3", {"n": -70_000})
    assert decoder.decode(prefix(4) + b"\2").kind == "hex"
    assert decoder.decode(prefix(3) + b"\x07").kind == "hex"
    assert decoder.decode(b'{"a": 1}').kind == "json"
    assert decoder.decode(b'{"a": ').kind == "text"
    assert decoder.decode(b"[" * 100_000).kind == "text"
    assert decoder.decode("Grüße".encode()).text == "Grüße"
    assert decoder.decode(b"\xff\x00").text == "ff 00"
    assert decoder.decode(None).kind == "null"
    assert Decoder(lambda schema_id: None, "hex").decode(b"a").text == "61"


def test_addresses_carry_any_name() -> None:
    assert addresses.topic("a.b", "records") == "/topics/a.b/records"
    assert addresses.group("a b") == "/groups/a%20b"
    assert addresses.group("../x") == "/group?name=..%2Fx"
    assert addresses.group("") == "/group?name="


def test_a_page_s_address_is_read() -> None:
    query = Query.parse({"partition": "2", "from": "offset", "offset": "17", "older": "0:5,2:9", "limit": "100000"})
    assert (query.partition, query.offset, query.older_than, query.limit) == (2, 17, {0: 5, 2: 9}, 1000)
    assert cursor_text({2: 9, 0: 5}) == "0:5,2:9"
    assert parse_time("1970-01-01T00:00:01") == parse_time("1970-01-01T01:00:01+01:00") == 1000
    for bad in (
        {"from": "x"},
        {"partition": "-1"},
        {"from": "time", "time": "noon"},
        {"from": "time", "time": "9" * 30},
        {"from": "time", "time": "9" * 5000},
        {"older": "1:x"},
    ):
        with pytest.raises(BadQuery):
            Query.parse(bad)


def view(node: int, *, end: int, watermark: int, epoch: int = 4, isr: tuple[int, ...] = (1, 2, 3)) -> dict[str, object]:
    return {
        "node_id": node,
        "role": "leader" if node == 1 else "follower",
        "leader": 1,
        "leader_epoch": epoch,
        "partition_epoch": 9,
        "replicas": [1, 2, 3],
        "isr": list(isr),
        "min_isr": 2,
        "log_start_offset": 0,
        "high_watermark": watermark,
        "log_end_offset": end,
        "size_bytes": 100,
        "epochs": [{"epoch": 3, "start_offset": 0}, {"epoch": 4, "start_offset": 20}],
        "followers": [{"node_id": 3, "ms_since_caught_up": 12_000}] if node == 1 else [],
    }


def three(isr: tuple[int, ...] = (1, 2, 3)) -> PartitionState:
    views = {
        1: view(1, end=40, watermark=30, isr=isr),
        2: view(2, end=38, watermark=30, isr=isr),
        3: view(3, end=30, watermark=28, isr=isr),
    }
    return combine("orders", 0, (1, 2, 3), views, None)


def test_the_picture_is_drawn_to_one_scale() -> None:
    state = three()
    window = Window(state)
    assert window.at(0) == 0
    assert window.at(30) < window.at(38) < window.at(40) < 100
    drawn = picture(state)
    for offset in (30, 38, 40):
        assert f'{window.at(offset):.3f}%" x2="{window.at(offset):.3f}%' in drawn
    assert "high watermark 30" in drawn
    assert "epoch 3" in drawn
    assert "epoch 4" in drawn
    assert "Node 3: follower, in sync, log end 30." in describe(state)
    assert "10 records behind" in drawn


def test_a_node_that_does_not_answer_is_remembered_and_said_to_be_gone() -> None:
    before = three()
    views = {
        1: view(1, end=50, watermark=50, epoch=5, isr=(1, 2)),
        2: view(2, end=50, watermark=50, epoch=5, isr=(1, 2)),
    }
    after = combine("orders", 0, (1, 2, 3), views, before)
    gone = after.replicas[2]
    assert (gone.answers, gone.in_sync, gone.log_end) == (False, False, 30)
    assert after.leader_epoch == 5
    shown = panel(after)
    assert "does not answer, out of sync" in shown
    assert "was at log end 30" in shown
    assert "2 of 3 replicas: 1, 2" in shown


def test_where_nobody_answers_all_are_said_to_be_gone() -> None:
    after = combine("orders", 0, (), {}, three())
    assert [(each.answers, each.log_end) for each in after.replicas] == [(False, 40), (False, 38), (False, 30)]
    shown = panel(after)
    assert shown.count("does not answer") == 9  # In the picture, in the table, and in words for who sees neither.
    assert "leader, in sync" not in shown


def test_a_node_that_is_cut_off_is_not_believed() -> None:
    """It still thinks that it leads, in an epoch that is over."""
    views = {1: view(1, end=60, watermark=40, epoch=4), 2: {**view(2, end=50, watermark=50, epoch=5), "leader": 2}}
    state = combine("orders", 0, (1, 2, 3), views, None)
    assert (state.leader, state.leader_epoch, state.high_watermark) == (2, 5, 50)


def test_a_picture_of_nothing_is_still_one() -> None:
    nobody = combine("orders", 0, (1, 2), {}, None)
    assert "nothing is known of its log" in picture(nobody)
    assert nobody.leader is None
    empty = replace(three(), replicas=())
    assert "high watermark –" not in picture(empty)


@pytest.mark.parametrize("end", [0, 1, 31, 33, 1_000, 10**9, (1 << 62)])
def test_ticks_are_few_and_round(end: int) -> None:
    views = {1: {**view(1, end=end, watermark=end), "log_start_offset": 0}}
    ticks = Window(combine("orders", 0, (1,), views, None)).ticks()
    assert 1 <= len(ticks) <= 12


def test_a_table_sorts_by_its_address() -> None:
    columns = [Column[int](title="number", cell=str, sort=lambda each: each, number=True)]
    query = {"sort": "number", "order": "down", "q": "<"}
    shown = table([1, 3, 2], columns, key=str, caption="Numbers", query=query, empty="None.")
    assert shown.index('data-key="3"') < shown.index('data-key="2"') < shown.index('data-key="1"')
    assert 'aria-sort="descending"' in shown
    assert "sort=number&amp;order=up&amp;q=%3C" in shown
    assert "None." in table([], columns, key=str, caption="Numbers", query={}, empty="None.")


def test_a_chart_draws_the_highest_and_says_what_they_are_now() -> None:
    series = {f"<{name}>": [Point(0, 0), Point(10, name)] for name in range(9)}
    shown = chart("Lag", series, lambda value: count(round(value), "record"))
    assert "now &lt;8&gt; 8 records" in shown
    assert "and 3 more" in shown
    assert "Nothing is known yet" in chart("Lag", {}, str)


def look(**changes: Any) -> Look:
    brokers = tuple(Broker(node=node, host="h", port=9092, rack=None, is_fenced=node == 2) for node in (1, 2, 3))
    given: dict[str, Any] = {
        "cluster": Cluster(cluster_id="x", controller=1, brokers=brokers),
        "quorum": None,
        "topics": {},
        "bounds": {},
        "sizes": {TopicPartition("orders", 0): {1: 2048, 3: 2048}},
        "directories": (),
        "groups": {},
    }
    return Look(time_s=0.0, groups_unmeasured=0, latency_ms=1.0, metrics={}, **{**given, **changes})


def silent(node: int) -> LogDirectory:
    error = KafkaError(ErrorCode.NETWORK_EXCEPTION, f"h-{node}:9092 cannot be reached")
    return LogDirectory(
        node=node, path="", error=error, total_bytes=-1, usable_bytes=-1, is_cordoned=False, replicas=()
    )


def test_what_is_wrong_is_said_once_in_words_and_with_what_to_do() -> None:
    found = findings(look(directories=(silent(2), silent(3))))
    assert [each.text for each in found] == [
        "Node 2 is not serving: start it, or look into its log.",
        "Node 3 tells nothing of its disks: h-3:9092 cannot be reached; look into its log.",
    ]


def test_a_disk_that_fills_is_something_to_keep_an_eye_on() -> None:
    nearly_full = replace(silent(1), path="/data", error=None, total_bytes=252 << 30, usable_bytes=19 << 30)
    found = findings(look(directories=(nearly_full, replace(nearly_full, node=3, usable_bytes=24 << 30))))
    assert [(each.is_bad, each.text) for each in found[1:]] == [
        (
            False,
            "The disk of node 1 at /data has 19.0 GiB left: delete records, shorten retention, or add room.",
        )
    ]


def test_of_a_node_that_was_not_heard_of_nothing_is_claimed() -> None:
    def voter(node: int, end: int) -> QuorumReplica:
        return QuorumReplica(
            node=node, directory_id="", log_end_offset=end, lag=149 - end, last_fetch_ms=-1, last_caught_up_ms=-1
        )

    quorum = Quorum(leader=3, leader_epoch=2, high_watermark=149, voters=(voter(2, -1), voter(3, 149)), observers=())
    well = replace(silent(1), path="/data", error=None)
    shown = str(brokers_page(look(quorum=quorum, directories=(well, silent(2))), {}))
    rows = [re.sub(r"<[^>]*>", " ", row).split() for row in re.findall(r"<tr data-key.*?</tr>", shown)]
    assert rows[1][:8] == ["Node", "2", "not", "serving", "h:9092", "–", "0", "partitions"]
    assert rows[1][-1] == "–"
    assert rows[0][-2:] == ["2.0", "KiB"]
    assert rows[3] == ["Node", "2", "voter", "–", "–", "–"]
    assert rows[4] == ["Node", "3", "leader", "offset", "149", "0", "records", "always"]


def test_metrics_are_read() -> None:
    text = '# HELP a b\na_total{topic="x\\"y"} 3\nb 1.5\nc{quantile="0.99",request="Fetch"} NaN\nno number here\n'
    found = parse_metrics(text)
    assert found['a_total{x\\"y}'] == 3
    assert found["b"] == 1.5


def test_versions_of_a_schema_are_compared_line_by_line() -> None:
    def version(number: int, text: str) -> Version:
        return Version(subject="s", version=number, schema_id=number, type="AVRO", text=text)

    shown = difference(version(1, '{"a": 1, "b": "<"}'), version(2, '{"a": 2, "b": "<"}'))
    assert '<span class="removed">-   &quot;a&quot;: 1,</span>' in shown
    assert '<span class="added">+   &quot;a&quot;: 2,</span>' in shown
    assert "&lt;" in shown


def test_an_acl_is_said_in_words() -> None:
    ann = Acl(resource="topic", name="orders", principal="User:ann", operation="read")
    assert in_words(ann) == "User:ann may read on the topic orders, from any host."
    all_ = replace(ann, name="*", operation="all", permission="deny", host="10.0.0.1")
    assert in_words(all_) == "User:ann may not do everything with every topic, from 10.0.0.1."
    (cluster,) = wanted_acls(
        principal="User:ann",
        permission="allow",
        operations=["alter"],
        resource="cluster",
        name="",
        pattern="prefixed",
        host="",
    )
    assert (cluster.name, cluster.pattern, cluster.host) == ("kafka-cluster", "literal", "*")
    assert in_words(cluster) == "User:ann may alter on the cluster, from any host."
    wrongs: list[dict[str, Any]] = [{"principal": "ann"}, {"operations": []}, {"name": ""}]
    for wrong in wrongs:
        given: dict[str, Any] = {"principal": "User:a", "operations": ["read"], "name": "x"}
        with pytest.raises(ValueError):
            wanted_acls(permission="allow", resource="topic", pattern="literal", host="", **{**given, **wrong})


def test_what_is_typed_is_encoded_as_its_schema_says() -> None:
    avro_schema = parse_schema(
        3, "AVRO", '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}', ()
    )
    proto = parse_schema(4, "PROTOBUF", 'syntax = "proto3"; message R { int32 a = 1; }', ())
    plain = parse_schema(5, "JSON", "{}", ())
    for schema, body in ((avro_schema, b"\x0e"), (proto, b"\0\x08\x07"), (plain, b'{"a":7}')):
        data = encode(schema, '{"a": 7}')
        assert data == bytes([0, 0, 0, 0, schema.schema_id]) + body
        decoded = Decoder(lambda _, found=schema: found).decode(data)  # type: ignore[misc]
        assert decoded.value == {"a": 7}
        assert decoded.kind == f"{schema.type.lower()}, schema {schema.schema_id}"
        with pytest.raises(ValueError, match="write JSON"):
            encode(schema, "{a: 7}")
    for schema in (avro_schema, proto):
        with pytest.raises(ValueError, match="a"):
            encode(schema, '{"a": "seven"}')
    with pytest.raises(ValueError, match="cannot be written by hand"):
        encode(Schema(schema_id=1, type="THRIFT"), "{}")


@pytest.mark.parametrize(("text", "minutes"), [("", 15), ("0", 0), ("90", 90), ("-1", 15), ("x", 15), ("9" * 20, 15)])
def test_how_long_a_transaction_was_silent(text: str, minutes: int) -> None:
    assert silent_min({"silent": text}) == minutes


def test_a_subject_is_of_a_topic() -> None:
    assert [topic_of(each, {"orders"}) for each in ("orders-value", "orders-key", "orders", "other-value")] == [
        *("orders", "orders"),
        *(None, None),
    ]
