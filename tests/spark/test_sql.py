"""Topics asked in SQL: `ottla sql`, in real Spark against a real node with its registry."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from rich.console import Console

from ottla.cli import sql as command
from ottla.errors import StartupError
from ottla.spark.crash_points import VARIABLE
from ottla.spark.sql import Topics, follow, named_in
from tests.gateway.conftest import Served, registry_url
from tests.node_process import running_node, start_node

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "city", "type": ["null", "string"], "default": None},
            {"name": "offset", "type": "string"},
        ],
    }
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select * from orders", ["orders"]),
        ("select orders.id from orders join `orders.eu` on true", ["orders", "orders.eu"]),
        ("select * from orders_2 where x = 'order'", ["orders_2"]),
        ("select 1", []),
        ("select * from `re-turns`", ["re-turns"]),
    ],
)
def test_which_topics_a_query_names(query: str, expected: list[str]) -> None:
    assert named_in(query, ["orders", "orders.eu", "orders_2", "re-turns"]) == expected


def test_what_takes_a_while_is_told_where_there_is_no_terminal_too() -> None:
    told = StringIO()
    with command._busy(Console(file=told), "starting Spark …"):
        assert told.getvalue() == "starting Spark …\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Typed orders, plain notes, and one record that is no text."""
    with running_node(tmp_path_factory.mktemp("sql-node")) as node:
        url = registry_url(node)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        with SchemaRegistryClient({"url": url}) as client:
            serialize = AvroSerializer(client, ORDER)
            context = SerializationContext("orders", MessageField.VALUE)
            for number in range(120):
                row = {"id": number, "city": None if number % 2 else "Graz", "offset": "field"}
                producer.produce("orders", serialize(row, context), f"k{number}")
        producer.produce("notes.eu", b'{"text": "hello [bold]"}', b"a", timestamp=1_500)
        producer.produce("notes.eu", b"\xff\xfe", None)
        assert producer.flush(60) == 0
        yield Served(node, url)


Ask = Callable[..., str]


@pytest.fixture
def ask(
    spark: SparkSession, served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Ask:
    """Runs the command and returns what it prints."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(
        query: str,
        *,
        follow: bool = False,
        from_beginning: bool = False,
        output: Path | None = None,
        limit: int | None = None,
        as_json: bool = False,
    ) -> str:
        command.run_sql(
            query,
            properties={"bootstrap.servers": served.node.bootstrap},
            registry=served.url,
            follow=follow,
            from_beginning=from_beginning,
            output=output,
            limit=limit,
            as_json=as_json,
        )
        return capsys.readouterr().out

    return run


@pytest.mark.spark
@pytest.mark.slow
def test_a_query_is_a_table(ask: Ask) -> None:
    said = ask("select city, count(*) as n, max(id) as most, min(key) from orders group by city order by city desc")
    assert "Graz" in said
    assert "null" in said
    assert "118" in said
    assert "119" in said
    assert said.endswith("2 rows.\n")
    said = ask("select value, key, partition, offset, timestamp from `notes.eu` order by offset")
    assert '{"text": "hello [bold]"}' in said
    assert "0xFFFE" in said
    assert "1970-01-01 00:00:01.5" in said
    assert ask("select id from orders").endswith(
        "100 rows, and there are more: raise --limit, or write them with --output.\n"
    )
    assert ask("select id from orders", limit=7).endswith("7 rows.\n")
    assert "field" in ask("select distinct offset from orders"), "a field of the value goes before the record's offset"


@pytest.mark.spark
@pytest.mark.slow
def test_an_answer_in_a_file(ask: Ask, tmp_path: Path) -> None:
    query = "select id, key from orders where city is not null order by id"
    said = ask(query, output=tmp_path / "a.csv")
    assert said.replace("\n", "").startswith("60 rows in ")
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["id"]) for row in rows] == list(range(0, 120, 2))
    ask(query, output=tmp_path / "a.json", limit=2)
    assert [json.loads(line) for line in (tmp_path / "a.json").read_text().splitlines()] == [
        {"id": 0, "key": "k0"},
        {"id": 2, "key": "k2"},
    ]
    import pyarrow.parquet as pq

    ask(query, output=tmp_path / "a.parquet")
    assert pq.ParquetFile(tmp_path / "a.parquet").read()["id"].to_pylist() == list(range(0, 120, 2))
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "a.json", "a.parquet"}, "nothing else is left"


@pytest.mark.spark
@pytest.mark.slow
def test_an_answer_for_programs(ask: Ask, tmp_path: Path) -> None:
    def told(query: str, **options: object) -> list[dict[str, object]]:
        return [json.loads(line) for line in ask(query, as_json=True, **options).splitlines()]

    assert told("select id, city from orders order by id", limit=2) == [
        {"id": 0, "city": "Graz"},
        {"id": 1, "city": None},
    ]
    assert len(told("select id from orders")) == 120, "a program gets all"
    query = "select struct(key, array(partition)) as place, timestamp, binary(value) as raw from `notes.eu` limit 1"
    (note,) = told(query)
    assert note["place"] == {"key": "a", "col2": [0]}
    assert str(note["timestamp"]).startswith("1970-01-01 00:00:01.5")
    assert str(note["raw"]).startswith("0x7B22")
    assert told("select double('NaN') as x, decimal(1.50) as d") == [{"x": "nan", "d": "2"}]
    file = tmp_path / "a.csv"
    assert told("select id from orders", output=file) == [{"file": str(file), "rows": 120}]
    followed = told("select id from orders where id >= 100", follow=True, from_beginning=True, limit=20)
    assert sorted(int(str(row["id"])) for row in followed) == list(range(100, 120))


@pytest.mark.spark
@pytest.mark.slow
def test_rows_as_they_come(ask: Ask) -> None:
    said = ask("select id from orders where id >= 100", follow=True, from_beginning=True, limit=20)
    assert all(str(number) in said for number in range(100, 120))
    assert said.endswith("20 rows.\n")


@pytest.mark.spark
@pytest.mark.slow
def test_rows_go_on_when_a_node_that_was_killed_is_back(spark: SparkSession, tmp_path: Path) -> None:
    nodes = [start_node(tmp_path)]
    bootstrap = nodes[0].bootstrap

    def produce(numbers: range) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for number in numbers:
            producer.produce("notes", b"%d" % number)
        assert producer.flush(60) == 0

    shown: list[int] = []

    def show(rows: list[Row]) -> None:
        shown.extend(int(row["value"]) for row in rows)
        if len(nodes) == 1:
            nodes[0].kill()
            nodes.append(start_node(tmp_path, port=nodes[0].address[1]))
            produce(range(10, 20))

    try:
        produce(range(10))
        topics = Topics(bootstrap=bootstrap, streaming=True, from_beginning=True)
        frame = topics.answer(spark, "select value from notes", topics.names())
        assert follow(frame, 20, show, lambda: False) == 20
    finally:
        nodes[-1].stop()
    assert len(nodes) == 2
    assert shown == list(range(20)), "each once, and in order"


@pytest.mark.spark
@pytest.mark.long
def test_a_file_is_as_it_was_if_the_command_is_killed(served: Served, tmp_path: Path) -> None:
    """With all of Spark, when the answer is computed and the file is not in its place yet."""
    file = tmp_path / "a.csv"
    file.write_text("before")
    command = [sys.executable, "-m", "ottla.cli", "sql", "select id from orders order by id", "--bootstrap"]
    command += [served.node.bootstrap, "--registry", served.url, "--output", str(file)]

    def run(**environment: str) -> int:
        return subprocess.run(
            command, env={**os.environ, **environment}, start_new_session=True, timeout=600, check=False
        ).returncode

    assert run(**{VARIABLE: "file-written!"}) != 0
    assert file.read_text() == "before"
    assert run() == 0
    assert file.read_text().split() == ["id", *map(str, range(120))]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("select * from nowhere", {}, "has no topic nowhere: it has .*notes.eu.*orders"),
        ("select nothing from orders", {}, "nothing"),
        ("selekt 1", {}, "selekt"),
        ("select 1", {"output": Path("a.xlsx")}, "end in .csv, .json, .parquet"),
        ("select 1", {"output": Path("nowhere/a.csv")}, "does not exist"),
        ("select 1", {"output": Path("a.csv"), "follow": True}, "writes no file"),
        ("select 1", {"from_beginning": True}, "goes with --follow"),
    ],
)
def test_what_cannot_be_answered(ask: Ask, query: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(StartupError, match=said) as refused:
        ask(query, **options)
    assert "\n" not in str(refused.value)
