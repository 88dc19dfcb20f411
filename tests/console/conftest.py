"""Debian's Chromium, and a real node with data whose console it looks at."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tests.node_process import NodeProcess, running_node

CHROMIUM = "/usr/bin/chromium"
SCRIPT = "<script>window.harmed=1</script>"
HOSTILE = f'{SCRIPT}<img src=x onerror="window.harmed=1">{{{{ 7 * 7 }}}}`${{1}}'
HOSTILE_GROUP = f"{SCRIPT}/../x"
LIMIT_MS = 60_000


class Stage(NamedTuple):
    node: NodeProcess
    url: str

    @property
    def registry(self) -> str:
        """Where the node's schemas are."""
        return str(re.findall(r"^schemas: (\S+)$", self.node.log(), re.MULTILINE)[-1])


def console_url(node: NodeProcess) -> str:
    """What `ottla up` says before it is ready."""
    return str(re.findall(r"^console: (\S+)$", node.log(), re.MULTILINE)[-1])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """No longer than a module: while it is open an event loop runs in this thread, and nobody else can run one."""
    assert os.path.exists(CHROMIUM), "these tests need Debian's Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        # Containers give it no sandbox of its own, and little shared memory.
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        with playwright.chromium.launch(executable_path=CHROMIUM, args=options) as browser:
            yield browser


class Visitor:
    """A page, and what went wrong on it: errors, and requests to anybody but the console."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        page.set_default_timeout(LIMIT_MS)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._on_message)
        page.on("request", self._on_request)

    def _on_message(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "data:")):
            self.complaints.append(f"asked {request.url}")

    def go(self, path: str) -> Page:
        self.page.goto(self.url + path)
        self.page.wait_for_selector("h1")
        # What is done before the page is connected, which takes a while on a busy machine, is not heard of.
        self.page.wait_for_function("window.socket && window.socket.connected")
        return self.page


def choose(page: Page, label: str, text: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=text, exact=True).click()


@pytest.fixture
def visitor(browser: Browser, stage: Stage) -> Iterator[Visitor]:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        visitor = Visitor(context.new_page(), stage.url)
        yield visitor
        assert visitor.complaints == []
        assert visitor.page.evaluate("window.harmed") is None


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with running_node(tmp_path_factory.mktemp("node"), module="tests.roomy_node") as node:
        fill(node.bootstrap)
        yield Stage(node, console_url(node))


def fill(bootstrap: str) -> None:
    """Topics with records, of which some mean no good, and groups that have read of them."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    # Records of long ago are kept: retention would take them away while the tests run.
    orders = NewTopic("orders", 2, config={"retention.ms": "-1"})
    made = admin.create_topics([orders, NewTopic("written", 1), NewTopic("hostile", 1)])
    for done in made.values():
        done.result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(120):
        value = json.dumps({"id": number, "item": "lamp" if number % 3 else "chair"})
        producer.produce("orders", value, f"customer-{number}", number % 2, timestamp=1_700_000_000_000 + number)
    producer.produce("hostile", HOSTILE, HOSTILE, headers={SCRIPT: HOSTILE})
    producer.produce("hostile", b'{"half": "\\ud800"}', b'["\\udc00"]')
    producer.produce("hostile", None, b"\x00\xff")
    assert producer.flush(60) == 0
    for group, topic in (("billing", "orders"), (HOSTILE_GROUP, "hostile")):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        consumer.close()
