"""The registry that ships with a node: started by the first connection, ended with the node, the same on all nodes."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ottla.testing
from ottla.cli.profiles import Profiles, save
from tests.gateway.conftest import Served, registry_url
from tests.node_process import running_node, start_node

pytestmark = pytest.mark.slow


def ask(url: str, path: str, body: object = None, method: str = "") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method or None)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def register(url: str, subject: str, schema: object) -> int:
    number: int = ask(url, f"/subjects/{subject}/versions", {"schema": json.dumps(schema)})["id"]
    return number


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_process_begins_with_the_first_connection_and_ends_with_the_node(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        url = registry_url(node)
        assert children_of(node.pid) == []
        assert ask(url, "/subjects") == []
        (registry,) = children_of(node.pid)
        assert register(url, "x", "int") == 1
        # It dies; the next connection is served all the same, and nothing is forgotten.
        os.kill(registry, signal.SIGKILL)
        until(lambda: registry not in children_of(node.pid))
        assert ask(url, "/subjects") == ["x"]
        (again,) = children_of(node.pid)
        node.kill()
        until(lambda: not Path(f"/proc/{again}").exists())


def test_schemas_outlive_the_node(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        assert register(registry_url(node), "x", "int") == 1
    with running_node(tmp_path) as node:
        url = registry_url(node)
        assert json.loads(ask(url, "/schemas/ids/1")["schema"]) == "int"
        assert register(url, "x", "long") == 2


def test_it_can_be_left_out(tmp_path: Path) -> None:
    node = start_node(tmp_path, "--registry", "off")
    node.process.send_signal(signal.SIGTERM)
    assert node.process.communicate(timeout=60)[0] == ""
    assert node.process.returncode == 0


def test_a_port_that_is_taken_stops_who_asked_for_it(served: Served, tmp_path: Path) -> None:
    address = served.url.removeprefix("http://")
    command = [sys.executable, "-m", "ottla.cli", "up", "--port", "0", "--data", str(tmp_path), "--registry", address]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 1
    assert re.fullmatch(r"ottla: Port \d+ of 127\.0\.0\.1 cannot be used for the schema registry .*\n", told.stderr)


def test_several_registries_on_one_cluster_agree(served: Served) -> None:
    """The node's own and two by themselves register the same schemas at the same time, over real transactions."""
    commands = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ottla.cli",
                "registry",
                "--bootstrap",
                served.node.bootstrap,
                "--listen",
                "127.0.0.1:0",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        urls = [served.url]
        for command in commands:
            assert command.stdout is not None
            urls.append(command.stdout.readline().removeprefix("ready: ").strip())
        work = [
            (url, f"agree-{n}", {"type": "enum", "name": f"e{n}", "symbols": ["A"]}) for n in range(6) for url in urls
        ]
        with ThreadPoolExecutor(3) as pool:
            ids = list(pool.map(lambda each: register(*each), work))
        by_schema = [set(ids[at : at + 3]) for at in range(0, len(ids), 3)]
        assert all(len(each) == 1 for each in by_schema), ids
        assert len(set.union(*by_schema)) == 6
        for url in urls:
            assert [ask(url, f"/subjects/agree-{n}/versions") for n in range(6)] == [[1]] * 6
    finally:
        for command in commands:
            command.terminate()
            assert command.wait(60) in (0, -signal.SIGTERM)
            assert command.stdout is not None
            command.stdout.close()


def test_it_logs_in_where_the_profile_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    with ottla.testing.node(security="SASL_PLAINTEXT", users={"ann": "secret"}) as node:
        save(tmp_path / "config.toml", Profiles(None, {"shop": node.client_config("ann")}))
        command = [sys.executable, "-m", "ottla.cli", "registry", "--profile", "shop", "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as registry:
            assert registry.stdout is not None
            try:
                url = registry.stdout.readline().removeprefix("ready: ").strip()
                assert register(url, "x", "int") == 1
                assert "_schemas" in node.topics()
            finally:
                registry.terminate()


def test_the_topic_is_compacted(served: Served) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    ask(served.url, "/subjects")
    admin = AdminClient({"bootstrap.servers": served.node.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, "_schemas")
    assert admin.describe_configs([resource])[resource].result(60)["cleanup.policy"].value == "compact"


def test_a_huge_body_is_refused_over_a_real_socket(served: Served) -> None:
    with pytest.raises((urllib.error.HTTPError, OSError)) as refused:
        ask(served.url, "/subjects/x/versions", {"schema": "x" * (5 * 1024 * 1024)})
    if isinstance(refused.value, urllib.error.HTTPError):
        assert refused.value.code == 413
        refused.value.close()
    assert isinstance(ask(served.url, "/subjects"), list)


def test_every_node_of_a_cluster_answers_and_one_may_die(tmp_path: Path) -> None:
    with running_node(tmp_path, "--nodes", "3") as cluster:
        urls = registry_url(cluster).split(",")
        assert register(urls[0], "x", "int") == 1
        assert register(urls[1], "x", "long") == 2
        # Each reads the log on its own, and hears of what another wrote a moment later.
        until(lambda: [ask(url, "/subjects/x/versions") for url in urls] == [[1, 2]] * 3)
        check_that_each_takes_records_for_every_leader(cluster.bootstrap, urls)
        seven = write_seven(urls[1])
        os.kill(int((tmp_path / "data" / "node-1.pid").read_text()), signal.SIGKILL)
        # Whatever it led is led by another within seconds; until then a registry says that it cannot.
        until(lambda: register_now(urls[1], "x", "float") == 3)
        until(lambda: register_now(urls[2], "x", "double") == 4)
        until(lambda: [ask(url, "/subjects/x/versions") for url in urls[1:]] == [[1, 2, 3, 4]] * 2)
        # So does the console, which asks the registries that are left.
        check_that_the_console_decodes_it(cluster.log(), seven)


def check_that_each_takes_records_for_every_leader(bootstrap: str, urls: list[str]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("spread", 3, 3)])["spread"].result(60)
    led = admin.list_topics("spread", timeout=60).topics["spread"].partitions
    assert {each.leader for each in led.values()} == {1, 2, 3}
    topic = "/v3/clusters/-/topics/spread"
    for at, url in enumerate(urls):
        for partition in led:
            written = ask(url, f"{topic}/records", {"partition_id": partition, "value": {"data": url}})
            assert written["offset"] == at
    for url in urls:
        for partition in led:
            read = ask(url, f"{topic}/partitions/{partition}/records?format=json")["data"]
            assert [each["value"]["data"] for each in read] == urls


def write_seven(url: str) -> int:
    """A record by the first schema, which is that of a number; its offset."""
    framed = base64.b64encode(b"\0\0\0\0\1\x0e").decode()
    body = {"partition_id": 0, "value": {"type": "BINARY", "data": framed}}
    offset: int = ask(url, "/v3/clusters/-/topics/spread/records", body)["offset"]
    return offset


def check_that_the_console_decodes_it(log: str, offset: int) -> None:
    (console,) = re.findall(r"^console: (\S+)$", log, re.MULTILINE)
    path = f"/topics/spread/records.jsonl?partition=0&from=offset&offset={offset}"
    with urllib.request.urlopen(console + path, timeout=60) as lines:
        assert [json.loads(line)["value"] for line in lines] == [7]


def register_now(url: str, subject: str, schema: object) -> int | None:
    """None if the registry says that the cluster cannot do it just now."""
    try:
        return register(url, subject, schema)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 500:
            raise
        return None
