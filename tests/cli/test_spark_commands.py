"""Commands that run on Spark mean the cluster that every other command means, and log in as these do. Spark itself is
not started here."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import typer

import ottla.testing
from ottla.cli import pipeline, sql
from ottla.cli.app import app
from ottla.client.login import Credentials
from ottla.client.registry import FoundSchema, RegistryClient, RegistrySettings
from ottla.client.settings import ClientSettings
from ottla.errors import StartupError
from ottla.spark.pipelines.definition import Pipeline
from ottla.spark.pipelines.sinks import TopicSink
from ottla.spark.sink.options import client_settings
from ottla.spark.source.options import SourceOptions
from ottla.testing import Node
from tests.cli.sessions import run_ottla

SERVING = {"up", "node", "registry", "console", "snapshot fork"}
"""These have no answer: they serve until they are stopped."""
TELLING = {"sim"}
"""This tells a developer a story."""
REGISTRY = ("--schema-registry", "http://r", "-X", "basic.auth.user.info=ann:hush")
LOGGED_IN = RegistrySettings(urls=("http://r",), user_info="ann:hush")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """Behind a password, which is in the current profile."""
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    with ottla.testing.node(security="SASL_PLAINTEXT", users={"ann": "secret"}) as node:
        node.create_topic("orders")
        login = [f"{key}={value}" for key, value in node.client_config("ann").items() if key != "bootstrap.servers"]
        options = [word for each in login for word in ("-X", each)]
        assert run_ottla(["profile", "add", "shop", "-b", node.bootstrap, *options, *REGISTRY])[0] == 0
        yield node


class Reader:
    """In Spark's place: hears which options a source is given."""

    schema: Any = None

    def __init__(self) -> None:
        self.heard: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        if name in ("read", "readStream"):
            return self
        return lambda *_, **__: self

    def option(self, key: str, value: str) -> Reader:
        self.heard[key] = value
        return self

    def options(self, **options: str) -> Reader:
        self.heard |= options
        return self


def test_sql_asks_the_cluster_of_the_profile(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.spark.sql import Topics

    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(sql, "run_sql", lambda query, **options: asked.append(options))
    assert run_ottla(["sql", "select 1"])[0] == 0
    assert run_ottla(["sql", "select 1", "-b", "127.0.0.1:1", "-X", "sasl.password=wrong", "--json"])[0] == 0
    mine, other = asked
    assert (mine["properties"]["bootstrap.servers"], mine["as_json"]) == (node.bootstrap, False)
    assert (other["properties"]["bootstrap.servers"], other["as_json"]) == ("127.0.0.1:1", True)
    assert other["properties"]["sasl.password"] == "wrong"

    topics = Topics(bootstrap=node.bootstrap, properties=mine["properties"], streaming=True)
    assert topics.names() == ["orders"]
    reader = Reader()
    monkeypatch.setattr("ottla.spark.sql.text_of", lambda column: column)
    monkeypatch.setattr("ottla.spark.sql.flat", lambda records: records)
    topics.table(reader, "orders")  # type: ignore[arg-type]
    assert _login(SourceOptions.parse(reader.heard, streaming=True).client.sasl) == ("ann", "secret")


def test_sql_logs_in_to_the_registry_too(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import StructType

    from ottla.spark.avro import functions
    from ottla.spark.sql import Topics

    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(sql, "run_sql", lambda query, **options: asked.append(options))
    assert run_ottla(["sql", "select 1"])[0] == 0
    heard: list[RegistrySettings] = []

    def shared(settings: RegistrySettings) -> RegistryClient:
        heard.append(settings)
        return RegistryClient(settings)

    monkeypatch.setattr("ottla.spark.sql.shared_registry", shared)
    monkeypatch.setattr(functions, "shared_registry", shared)
    monkeypatch.setattr(
        RegistryClient, "latest", lambda *_: FoundSchema(id=1, kind="AVRO", text='"long"', references=())
    )
    monkeypatch.setattr("ottla.spark.sql.flat", lambda records: records)
    topics = Topics(bootstrap=node.bootstrap, properties=asked[0]["properties"], registry="http://r")
    reader = Reader()
    reader.schema = StructType([])
    topics.table(reader, "orders")  # type: ignore[arg-type]
    # Asked which kind it is, and then for it, of the key and of the value.
    assert heard == [LOGGED_IN] * 4


def test_a_console_of_its_own_logs_in_to_the_registry_of_the_profile(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.cli import console

    served: list[dict[str, Any]] = []

    def serve(sock: socket.socket, settings: ClientSettings, **options: Any) -> None:
        sock.close()
        served.append(options)

    monkeypatch.setattr(console, "serve_console", serve)
    monkeypatch.setattr(console, "run", lambda serving: None)
    assert run_ottla(["console", "--port", "0"])[0] == 0
    assert run_ottla(["console", "--port", "0", "--registry", "http://a,http://b:8082/"])[0] == 0
    assert [each["registry"] for each in served] == [
        LOGGED_IN,
        RegistrySettings(urls=("http://a", "http://b:8082"), user_info="ann:hush"),
    ]
    status, _, said = run_ottla(["console", "--port", "0", "--registry", "r:8081"])
    assert (status, said) == (
        1,
        "ottla: 'r:8081' is no address of a schema registry: write http://host:port.\n",
    )


def test_rows_are_told_to_programs_with_all_that_json_has(capsys: pytest.CaptureFixture[str]) -> None:
    from pyspark.sql import Row

    names = ["place", "raw", "when", "share", "price", "more"]
    row = Row(*names)
    place, day = Row(key="a", at=[0]), datetime(2026, 1, 31)
    full = row(place, bytearray(b"\xff"), day, float("nan"), Decimal("1.50"), {1: None})
    sql._print_json(names, [full, row(None, None, None, 0.5, True, "→")])
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {
            "place": {"key": "a", "at": [0]},
            "raw": "0xFF",
            "when": "2026-01-31 00:00:00",
            "share": "nan",
            "price": "1.50",
            "more": {"1": None},
        },
        {"place": None, "raw": None, "when": None, "share": 0.5, "price": True, "more": "→"},
    ]


@pytest.mark.parametrize(
    "command",
    [
        ["table", "orders", "lake/orders", "--once"],
        ["table", "orders", "lake/orders", "--back"],
        ["redrive", "orders"],
    ],
    ids=["table", "table-back", "redrive"],
)
def test_pipelines_log_in_where_the_profile_says(
    node: Node, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Pipeline] = []
    monkeypatch.setattr(pipeline, "run", lambda pipeline, **_: made.append(pipeline))
    assert run_ottla(["pipeline", *command]) == (0, b"", "")
    (ready,) = made
    if "--back" not in command:
        reader = Reader()
        monkeypatch.setattr("ottla.spark.pipelines.redrive.opened", lambda records: records)
        ready.build(reader)  # type: ignore[arg-type]
        options = SourceOptions.parse(reader.heard, streaming=True)
        assert options.client.bootstrap == ((node.bootstrap.split(":")[0], int(node.bootstrap.split(":")[1])),)
        assert _login(options.client.sasl) == ("ann", "secret")
    if isinstance(ready.sink, TopicSink):
        assert _login(client_settings(ready.sink._options()).sasl) == ("ann", "secret")
    monkeypatch.setattr(pipeline, "CHECK_PATIENCE_MS", 200)
    status, _, said = run_ottla(["pipeline", *command, "-X", "sasl.password=wrong"])
    assert (status, "does not let us in" in said) == (1, True)


def _login(credentials: Credentials | None) -> tuple[str, str]:
    assert credentials is not None
    return credentials.username, credentials.password


def test_every_command_that_answers_does_so_in_json_too() -> None:
    without = {name for name, command in _commands(typer.main.get_command(app)) if not _has_json(command)}
    assert without == SERVING | TELLING


def _commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    context = typer.Context(command, info_name="ottla")
    for each in command.list_commands(context):
        yield from _commands(command.get_command(context, each), f"{name} {each}".strip())


def _has_json(command: Any) -> bool:
    return any("--json" in parameter.opts for parameter in command.params)


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setattr(pipeline, "CHECK_PATIENCE_MS", 200)
    with pytest.raises(
        StartupError, match=r"The cluster at 127\.0\.0\.1:1 does not answer: .* --bootstrap or --profile"
    ):
        pipeline._check_cluster({"bootstrap.servers": "127.0.0.1:1"}, topic=None)
