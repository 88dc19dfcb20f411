"""A topic followed in a real browser, over HTTP: by a script, and by a person who opens the address."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, expect

from tests.console.conftest import LIMIT_MS, SCRIPT, Stage

pytestmark = pytest.mark.slow
expect.set_options(timeout=LIMIT_MS)

LISTEN = """
window.heard = [];
new Promise((resolve) => {
  const source = new EventSource("/topics/written/stream?partition=0&from=beginning");
  source.onmessage = (event) => window.heard.push(JSON.parse(event.data).value.data);
  source.onopen = resolve;
})
"""

WAIT = """
new Promise((resolve) => {
  const look = () => (window.heard.includes("afterwards") ? resolve(window.heard) : setTimeout(look, 50));
  look();
})
"""
"""The page's own policy lets nobody evaluate text, which waiting by Playwright would."""


def test_events_reach_a_browser(browser: Browser, stage: Stage) -> None:
    producer = Producer({"bootstrap.servers": stage.node.bootstrap})

    def write(value: str) -> None:
        producer.produce("written", value, partition=0)
        assert producer.flush(60) == 0

    write(f"before {SCRIPT}")
    with browser.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        page.goto(f"{stage.registry}/docs")
        page.evaluate(LISTEN)
        write("afterwards")
        assert f"before {SCRIPT}" in page.evaluate(WAIT)
        # The address itself, as a person opens it.
        page.goto(f"{stage.registry}/topics/written/stream?from=beginning", wait_until="commit")
        expect(page.locator("body")).to_contain_text("afterwards")
        assert page.evaluate("window.harmed") is None
