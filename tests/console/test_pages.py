"""The console in a real browser, against a real node."""

from __future__ import annotations

import http.client
import json
import os
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.console.conftest import HOSTILE, HOSTILE_GROUP, LIMIT_MS, Stage, Visitor, choose

pytestmark = pytest.mark.slow
expect.set_options(timeout=LIMIT_MS)

PAGES = {
    "/": "Health",
    "/topics": "Topics",
    "/topics/orders": "orders",
    "/topics/orders/partitions/0": "Partition 0",
    "/topics/orders/records": "Records",
    "/topics/orders/produce": "Produce a record",
    "/groups": "Consumer groups",
    "/groups/billing": "billing",
    "/brokers": "Nodes",
    "/charts": "Charts",
    "/transactions": "Transactions",
    "/schemas": "Schemas",
    "/acls": "ACLs",
    "/users": "Users",
}


def test_every_page_opens_from_its_address_wide_and_narrow_light_and_dark(visitor: Visitor) -> None:
    """With nothing asked of any other host, and no complaint in the browser. Screenshots are for who looks: into the
    directory that `OTTLA_SCREENSHOTS` names."""
    page = visitor.page
    directory = os.environ.get("OTTLA_SCREENSHOTS")
    for path, title in PAGES.items():
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1280, "height": 900})
        visitor.go(path)
        expect(page.locator("h1")).to_have_text(title)
        assert page.title() == f"{title} · Ottla"
        expect(page.locator(".notice.bad")).to_have_count(0)
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        name = path.strip("/").replace("/", "-") or "health"
        if directory:
            page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        if directory:
            page.screenshot(path=Path(directory) / f"{name}-narrow-dark.png", full_page=True)


def test_health_topics_and_nodes_tell_what_is_there(visitor: Visitor) -> None:
    page = visitor.go("/")
    expect(page.get_by_text("All is well.")).to_be_visible()
    expect(page.get_by_text("1 of 1 node")).to_be_visible()
    visitor.go("/topics?q=ord")
    row = page.locator("tr[data-key=orders]")
    expect(row).to_contain_text("2 of 2 replicas")
    expect(row).to_contain_text("120")
    expect(row).to_contain_text(re.compile(r"\d(\.\d)? KiB"))
    expect(row).to_contain_text("0 records/s")
    expect(page.locator("tr[data-key=hostile]")).to_have_count(0)
    visitor.go("/topics/orders")
    expect(page.locator(".facts").first).to_contain_text("billing, 59 records behind")
    visitor.go("/brokers")
    expect(page.locator("tr[data-key='1']").first).to_contain_text("serving")
    controllers, disks = (page.locator("table", has_text=head) for head in ("last caught up", "free on the volume"))
    expect(controllers.locator("tbody tr")).to_contain_text(re.compile(r"leader\s*offset \d+\s*0 records"))
    expect(disks.locator("tbody tr")).to_contain_text(re.compile(r"well\s*\d+ replicas\s*.*iB of "))
    visitor.go("/groups/billing")
    expect(page.locator("tr", has_text="orders-0")).to_contain_text("59 records")
    behind = page.locator("figure", has_text="Behind the end, by topic")
    expect(behind.locator("path.chart-line")).to_be_attached()
    expect(behind.locator(".legend")).to_contain_text("orders 59 records")


def test_records_are_found_by_offset_time_and_filter(visitor: Visitor) -> None:
    page = visitor.go("/topics/orders/records?partition=1&from=offset&offset=10&limit=3")
    expect(page.locator(".record")).to_have_count(3)
    expect(page.locator(".record .key")).to_have_text(["customer-25", "customer-23", "customer-21"])
    page.get_by_role("link", name="← Newer").click()
    expect(page.locator(".record .key")).to_have_text(["customer-31", "customer-29", "customer-27"])
    page.get_by_role("link", name="Older →").click()
    expect(page.locator(".record .key")).to_have_text(["customer-25", "customer-23", "customer-21"])
    visitor.go("/topics/orders/records?partition=1&newer=1:60")
    expect(page.locator(".empty")).to_have_text("Nothing newer has come yet.")
    visitor.go("/topics/orders/records?partition=1&older=1:0")
    expect(page.locator(".empty")).to_have_text("There is nothing older.")
    visitor.go("/topics/orders/records?from=time&time=2023-11-14T22:13:20.118")
    expect(page.locator(".record .key")).to_have_text(["customer-119", "customer-118"])
    visitor.go(f"/topics/orders/records?filter={quote('chair value.id>110')}")
    expect(page.locator(".record .key")).to_have_text(["customer-117", "customer-114", "customer-111"])
    page.locator(".record summary").first.click()
    expect(page.locator("pre").nth(1)).to_have_text('{\n  "id": 117,\n  "item": "chair"\n}', use_inner_text=True)
    visitor.go("/topics/orders/records?filter=/(/")
    expect(page.get_by_role("alert")).to_contain_text("RE2")


def test_records_can_be_saved(stage: Stage, visitor: Visitor) -> None:
    page = visitor.go("/topics/orders/records?filter=customer-119")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download as JSON lines").click()
    (line,) = Path(saved.value.path()).read_text().splitlines()
    assert json.loads(line)["value"] == {"id": 119, "item": "lamp"}
    page.locator(".record summary").click()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download the key").click()
    assert Path(saved.value.path()).read_bytes() == b"customer-119"
    assert saved.value.suggested_filename == "orders-1-59.key.bin"


def test_a_value_is_copied(visitor: Visitor) -> None:
    visitor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visitor.go("/topics/orders/records?filter=customer-119")
    page.locator(".record summary").click()
    page.get_by_role("button", name="Copy the value").click()
    expect(page.locator("#said")).to_have_text("Copied")
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == {"id": 119, "item": "lamp"}


def test_a_topic_is_made_and_deleted(visitor: Visitor) -> None:
    page = visitor.go("/topics")
    page.get_by_label("Name", exact=True).fill("no/name")
    page.get_by_role("button", name="Create").click()
    expect(page.locator(".q-notification")).to_contain_text("no/name")
    page.get_by_label("Name", exact=True).fill("made-by-hand")
    page.get_by_label("Partitions").fill("3")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("h1")).to_have_text("made-by-hand")
    expect(page.locator("tr", has_text="Partition 2")).to_contain_text("node 1")
    page.get_by_label("The topic's name, to be sure").fill("made")
    page.get_by_role("button", name="Delete the topic").click()
    expect(page.locator(".q-notification")).to_contain_text("Write the topic's name")
    page.get_by_label("The topic's name, to be sure").fill("made-by-hand")
    page.get_by_role("button", name="Delete the topic").click()
    expect(page.locator("h1")).to_have_text("Topics")
    expect(page.locator("tr[data-key=orders]")).to_be_visible()
    expect(page.locator("tr[data-key=made-by-hand]")).to_have_count(0)


COVERED = """
[...document.querySelectorAll(".chart-box")].filter(box => {
  const [label, lines] = [".chart-top", "svg"].map(each => box.querySelector(each).getBoundingClientRect());
  return label.bottom > lines.top;
}).length
"""


def test_charts_have_lines_and_say_what_they_are(visitor: Visitor) -> None:
    page = visitor.go("/charts")
    for title, said in (
        ("Records appended, by topic", "orders 0 records/s"),
        ("Behind the end, by group", "billing 59 records"),
        ("Replicas", "in sync"),
        ("Time of one question to the cluster", "from here"),
        ("Bytes from producers, by node", "node 1"),
    ):
        figure = page.locator("figure", has=page.get_by_text(title, exact=True))
        expect(figure.locator("path.chart-line").first).to_be_attached()
        expect(figure.locator(".legend")).to_contain_text(said)
    # What is newest is at the right, where the highest value is said: above the lines, and not on them.
    assert page.evaluate(COVERED) == 0


def test_a_record_is_written_and_appears_in_a_live_tail(browser: Browser, stage: Stage, visitor: Visitor) -> None:
    tail = visitor.go("/topics/written/records?tail=1")
    expect(tail.get_by_text("● live")).to_be_visible()
    with browser.new_context() as context:
        page = Visitor(context.new_page(), stage.url).go("/topics/written/produce")
        page.get_by_label("Key (empty: null)").fill("by hand")
        page.get_by_label("Value", exact=True).fill("<i>hello</i>")
        page.get_by_label("Headers").fill("trace: 7")
        page.get_by_role("button", name="Produce").click()
        expect(page.get_by_text("Appended to partition 0")).to_be_visible()
    expect(tail.locator(".record", has_text="by hand").first).to_contain_text("<i>hello</i>")


def test_a_config_is_changed_after_a_preview(visitor: Visitor) -> None:
    page = visitor.go("/topics/written")
    choose(page, "Config", "retention.ms")
    page.get_by_label("New value").fill("a week")
    page.get_by_role("button", name="Preview the change").click()
    expect(page.locator(".q-notification")).to_be_visible()  # The cluster was asked, and would not take it.
    page.get_by_label("New value").fill("123456")
    page.get_by_role("button", name="Preview the change").click()
    expect(page.locator(".dialog td.changed")).to_have_text("123456")
    page.get_by_role("button", name="Change it").click()
    expect(page.locator("tr[data-key='retention.ms']")).to_contain_text("123456")
    expect(page.locator("tr[data-key='retention.ms']")).to_contain_text("topic")


def test_a_group_is_moved_after_a_preview(visitor: Visitor) -> None:
    page = visitor.go("/groups/billing")
    choose(page, "To", "an offset")
    page.get_by_label("Offset, number or time").fill("5000")
    page.get_by_role("button", name="Preview the move").click()
    cells = page.locator(".dialog tbody td")
    expect(cells).to_have_text(["1", "60", "0 records"])
    page.get_by_role("button", name="Leave it as it is").click()
    expect(page.locator(".dialog")).to_have_count(0)
    expect(page.locator("tr", has_text="orders-0")).to_contain_text("59 records")


def test_an_address_that_leads_nowhere_shows_the_way(visitor: Visitor) -> None:
    page = visitor.page
    for path in ("/nowhere", "/topics/orders/partitions/0/more"):
        answer = page.goto(visitor.url + path)
        assert answer is not None
        assert answer.status == 404
        expect(page.get_by_role("alert")).to_have_text("There is no page at this address.")
    page.get_by_role("link", name="Topics").click()
    expect(page.locator("h1")).to_have_text("Topics")
    # The browser itself complains of a page that is not there.
    assert all("404" in each for each in visitor.complaints)
    visitor.complaints.clear()


def test_a_long_name_makes_no_page_too_wide(stage: Stage, visitor: Visitor) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"long.{'x' * 240}"
    admin = AdminClient({"bootstrap.servers": stage.node.bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result(60)
    page = visitor.page
    try:
        visitor.go(f"/topics/{name}")  # From now on the console knows it.
        for path in (
            "/charts",
            "/topics",
            f"/topics/{name}",
            f"/topics/{name}/records",
            f"/topics/{name}/partitions/0",
        ):
            visitor.go(path)
            for width in (1280, 390):
                page.set_viewport_size({"width": width, "height": 844})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    finally:
        admin.delete_topics([name])[name].result(60)


def test_what_people_write_is_never_run(visitor: Visitor) -> None:
    page = visitor.go("/topics/hostile/records")
    page.locator(".record summary").last.click()
    expect(page.locator(".record").last.locator("pre").first).to_have_text(HOSTILE, use_inner_text=True)
    expect(page.locator(".record").first).to_contain_text("00 ff")
    expect(page.locator(".record").nth(1)).to_contain_text('{"half": "\\ud800"}')
    visitor.go(f"/groups?q={quote('<script>')}")
    page.get_by_role("link", name=HOSTILE_GROUP).click()
    expect(page.locator("h1")).to_have_text(HOSTILE_GROUP)
    visitor.go(f"/topics/{quote('<img src=x onerror=window.harmed=1>')}")
    expect(page.get_by_role("alert")).to_have_text("There is no topic of this name.")
    visitor.go(f"/topics/orders/records?partition={quote(HOSTILE, safe='')}")
    expect(page.get_by_role("alert")).to_contain_text("<script>")
    assert page.evaluate("window.harmed") is None


def test_it_works_with_a_keyboard(visitor: Visitor) -> None:
    page = visitor.go("/")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("?")
    expect(page.locator("dialog#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog#keys")).not_to_be_visible()
    page.keyboard.press("d")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.locator("h1")).to_have_text("Topics")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("writ")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "headers",
    [{"Host": "rebound.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}],
    ids=["rebinding", "origin", "nobody"],
)
def test_other_sites_are_turned_away(stage: Stage, method: str, headers: dict[str, str]) -> None:
    """The way by which pages send what people do, as a request and as a web socket."""
    address = stage.url.removeprefix("http://")
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    for path, more in (
        ("/_nicegui_ws/socket.io/?EIO=4&transport=polling", {}),
        ("/_nicegui_ws/socket.io/?EIO=4&transport=websocket", upgrade if method == "GET" else {}),
        ("/topics", {}),
    ):
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request(method, path, headers={**more, **headers})
        assert connection.getresponse().status == 403, path
        connection.close()
