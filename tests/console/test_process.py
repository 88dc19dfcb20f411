"""The console as a process: begun by the first connection, ended with the node, and closed to strangers elsewhere."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import ottla.testing
from ottla.cli import gateway, up
from ottla.cli.profiles import Profiles, save
from tests.console.conftest import LIMIT_MS, Stage, Visitor, console_url
from tests.node_process import running_node, start_node

pytestmark = pytest.mark.slow
expect.set_options(timeout=LIMIT_MS)


def get(url: str, path: str = "/", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    try:
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_begins_with_the_first_connection_and_ends_with_the_node(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        url = console_url(node)
        assert children_of(node.pid) == []
        assert get(url)[0] == 200
        (console,) = children_of(node.pid)
        node.kill()
        until(lambda: not Path(f"/proc/{console}").exists())


def test_it_can_be_left_out(tmp_path: Path) -> None:
    with running_node(tmp_path, "--no-console") as node:
        assert "console: " not in node.log()


def test_a_port_that_is_taken_stops_who_asked_for_it_and_nobody_else(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [
            sys.executable,
            "-m",
            "ottla.cli",
            "up",
            "--port",
            "0",
            "--data",
            str(tmp_path),
            "--console-port",
            port,
        ]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert told.returncode == 1
        assert f"Port {port} of 127.0.0.1 cannot be used for the console" in told.stderr


def test_the_usual_port_may_be_taken_and_then_the_person_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    assert (gateway.CONSOLE_HOST, gateway.CONSOLE_PORT) == ("127.0.0.1", 8080)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(gateway, "CONSOLE_PORT", port)
        assert gateway.open_console(None, free_port=False, registry_url=None, notes=notes) is None
    assert notes == [f"ottla: port {port} is taken, so there is no console: choose another with --console-port."]


def test_so_it_is_with_the_usual_port_of_the_registry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(up, "DEFAULT_ADDRESS", f"127.0.0.1:{port}")
        assert up._open_registries(None, 1, free_port=False, notes=notes) == {}
    assert notes == [f"ottla: port {port} is taken, so there is no registry: choose another with --registry."]


def test_of_several_nodes_it_is_said_which_one_serves_no_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(up, "DEFAULT_ADDRESS", f"127.0.0.1:{port}")
        opened = up._open_registries(None, 2, free_port=False, notes=notes)
    for each in opened.values():
        each.close()
    assert 1 not in opened
    assert notes[0] == f"ottla: port {port} is taken, so node 1 serves no schemas: choose another with --registry."


def test_who_is_refused_hears_of_no_port_besides(tmp_path: Path) -> None:
    """Somebody has the console's usual port, and the one for clients."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # Whoever has it already does as well.
            held.enter_context(socket.create_server(("127.0.0.1", gateway.CONSOLE_PORT)))
        clients = held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        command = [sys.executable, "-m", "ottla.cli", "up", "--port", str(clients), "--data", str(tmp_path / "data")]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert [line.split(" ")[1] for line in told.stderr.splitlines()] == ["Port"], told.stderr


@contextmanager
def console(*arguments: str, bootstrap: str) -> Iterator[str]:
    command = [sys.executable, "-m", "ottla.cli", "console", "--bootstrap", bootstrap, "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().removeprefix("ready: ").strip().replace("0.0.0.0", "127.0.0.1")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
        process.stdout.close()


def test_where_other_machines_come_in_it_shows_no_records_and_changes_nothing_without_users(
    browser: Browser, stage: Stage
) -> None:
    with console("--host", "0.0.0.0", bootstrap=stage.node.bootstrap) as url, browser.new_context() as context:
        for path in ("records.jsonl", "records/0/0/value"):
            status, said = get(url, f"/topics/orders/{path}")
            assert (status, said.startswith("No records are shown here")) == (400, True)
        page = Visitor(context.new_page(), url).go("/topics/orders/records")
        expect(page.get_by_text("No records are shown here")).to_be_visible()
        page = Visitor(context.new_page(), url).go("/topics/orders/produce")
        expect(page.get_by_text("This console changes nothing")).to_be_visible()
        expect(page.get_by_role("button", name="Produce")).to_have_count(0)


def test_users_log_in_and_then_live_pages_work(browser: Browser, stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("anna:secret\n")
    arguments = ("--host", "0.0.0.0", "--users", str(tmp_path / "users"))
    with console(*arguments, bootstrap=stage.node.bootstrap) as url:
        assert get(url)[0] == 401
        wrong = base64.b64encode(b"anna:guess").decode()
        assert get(url, Authorization=f"Basic {wrong}")[0] == 401
        with browser.new_context(http_credentials={"username": "anna", "password": "secret"}) as context:
            page = Visitor(context.new_page(), url).go("/topics/written/produce")
            page.get_by_label("Key (empty: null)").fill("by anna")
            page.get_by_role("button", name="Produce").click()
            expect(page.get_by_text("Appended to partition")).to_be_visible()


def test_a_cluster_behind_a_lock_is_shown_to_who_has_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    with ottla.testing.node(security="SASL_SSL", users={"ann": "secret"}) as node:
        node.create_topic("locked-orders")
        for password, shown in (("secret", "locked-orders"), ("guessed", "The cluster cannot be asked.")):
            properties = {**node.client_config("ann"), "sasl.password": password, "default.api.timeout.ms": "2000"}
            options = [word for key, value in properties.items() for word in ("-X", f"{key}={value}")]
            with console(*options, bootstrap=node.bootstrap) as url:
                status, page = get(url, "/topics")
                assert status == 200
                assert shown in page
                assert password not in page
        save(tmp_path / "config.toml", Profiles(None, {"shop": node.client_config("ann")}))
        with console("--profile", "shop", bootstrap=node.bootstrap) as url:
            assert "locked-orders" in get(url, "/topics")[1]


def test_a_node_dies_while_the_picture_is_open_and_the_picture_shows_it(browser: Browser, tmp_path: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    cluster = start_node(tmp_path, "--nodes", "3")
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})

        def produce(records: int) -> None:
            for number in range(records):
                producer.produce("orders", f"record {number}")
            assert producer.flush(60) == 0

        produce(40)
        with browser.new_context() as context:
            visitor = Visitor(context.new_page(), console_url(cluster))
            page = visitor.go("/topics/orders/partitions/0")
            facts = page.locator(".facts").first
            expect(facts).to_contain_text("3 of 3 replicas")
            expect(facts).to_contain_text("offset 40")
            expect(page.locator("svg.replication g.in-sync.replica")).to_have_count(3)
            before = facts.inner_text()
            # It moves as records arrive, with nobody touching the page: the very elements move.
            page.evaluate("document.querySelector('.watermark').marked = true")
            produce(5)
            expect(page.locator(".watermark-label")).to_have_text("high watermark 45")
            assert page.evaluate("document.querySelector('.watermark').marked")
            leader = int(before.partition("Node ")[2].split()[0])
            epoch = int(before.partition("Leader epoch")[2].split()[0])
            os.kill(int((tmp_path / "data" / f"node-{leader}.pid").read_text()), signal.SIGKILL)
            expect(page.locator("g.words.gone")).to_contain_text(f"Node {leader}")
            expect(facts).to_contain_text("2 of 3 replicas")
            expect(facts).not_to_contain_text(f"Leader\nNode {leader}")
            produce(3)
            expect(page.locator(".watermark-label")).to_have_text("high watermark 48")
            expect(page.locator("g.words.gone")).to_contain_text("was at log end 45")
            assert int(facts.inner_text().partition("Leader epoch")[2].split()[0]) > epoch
            page.screenshot(path=tmp_path / "killed.png", full_page=True)
            visitor.go("/")
            expect(page.locator(".verdict")).to_contain_text("to look at")
            assert visitor.complaints == []
    finally:
        cluster.stop()
