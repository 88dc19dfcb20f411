"""The console in front of Apache Kafka itself: its pages are true there too."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from ottla.admin.groups import commit_offsets, position_at
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.model import TopicPartition
from tests.console.conftest import LIMIT_MS, Visitor, browser
from tests.console.test_process import console
from tests.oracle.apache_kafka import ApacheKafka

__all__ = ["browser"]

pytestmark = pytest.mark.oracle
expect.set_options(timeout=LIMIT_MS)


def test_the_pages_tell_what_apache_kafka_has(browser: Browser, apache: ApacheKafka) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    bootstrap = apache.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce("orders", f"value {number}", f"key {number}")
    assert producer.flush(60) == 0
    with BlockingClient(ClientSettings.parse({"bootstrap.servers": bootstrap})) as client:
        commit_offsets(client, "billing", {TopicPartition("orders", 0): position_at(15)})
    with console(bootstrap=bootstrap) as url, browser.new_context() as context:
        visitor = Visitor(context.new_page(), url)
        page = visitor.go("/topics/orders/produce")
        page.get_by_label("Key (empty: null)").fill("by hand")
        page.get_by_role("button", name="Produce").click()
        expect(page.get_by_text("at offset 20")).to_be_visible()
        visitor.go("/topics/orders/partitions/0")
        expect(page.locator(".watermark-label")).to_have_text("high watermark 21")
        visitor.go("/topics/orders/records?limit=2")
        expect(page.locator(".record .key")).to_have_text(["by hand", "key 19"])
        visitor.go("/groups/billing")
        expect(page.locator("tr", has_text="orders-0")).to_contain_text("6 records")
        for path in ("/", "/topics", "/topics/orders", "/brokers", "/charts", "/transactions", "/acls", "/users"):
            visitor.go(path)
            expect(page.locator(".notice.bad")).to_have_count(0)
        assert visitor.complaints == []
