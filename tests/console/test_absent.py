"""A cluster that is not there, one that has nothing yet, and one that dies: each page says so, and nothing that is not
true."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

import ottla.testing
from tests.console.conftest import LIMIT_MS, Visitor
from tests.console.test_process import console

pytestmark = pytest.mark.slow
expect.set_options(timeout=LIMIT_MS)

PAGES = ("/topics", "/topics/orders/records", "/topics/orders/partitions/0", "/groups/billing", "/acls")
"""One of each kind: those that show what the poller sees, those about one thing, those that ask by themselves."""
EMPTY = {
    "/topics": "There is no topic yet.",
    "/groups": "No consumer has come yet",
    "/transactions": "Nobody writes in transactions",
    "/schemas": "This console knows no schema registry",
    "/users": "The cluster knows no SCRAM user.",
}


def test_a_cluster_comes_is_empty_and_goes(browser: Browser) -> None:
    with ottla.testing.cluster(nodes=1) as cluster:
        cluster.kill(1)
        impatient = ("-X", "default.api.timeout.ms=500", "-X", "retry.backoff.ms=50")
        with console(*impatient, bootstrap=cluster.bootstrap) as url, browser.new_context() as context:
            visitor = Visitor(context.new_page(), url)
            page = visitor.page
            for path in PAGES:
                visitor.go(path)
                expect(page.get_by_role("alert")).to_contain_text("The cluster cannot be asked.")
                expect(page.locator(".empty")).to_contain_text("has not answered yet")
                expect(page.get_by_text("There is no")).to_have_count(0)
            # The last that was open is about something that only the cluster knows; it hears of it by itself.
            visitor.go("/topics/orders")
            cluster.restart(1)
            expect(page.get_by_text("There is no topic of this name.")).to_be_visible()
            for path, said in EMPTY.items():
                visitor.go(path)
                expect(page.get_by_text(said)).to_be_visible()
            # What is made behind the console's back is known as soon as somebody asks for it.
            cluster.create_topic("orders")
            visitor.go("/topics/orders/partitions/0")
            expect(page.locator("g.words.leads")).to_contain_text("leader, in sync")
            cluster.kill(1)
            expect(page.locator("g.words.gone")).to_contain_text("does not answer")
            expect(page.get_by_role("alert")).to_contain_text("What is shown was true at")
            visitor.go("/topics")
            expect(page.locator("tr[data-key=orders]")).to_be_visible()
            assert visitor.complaints == []
