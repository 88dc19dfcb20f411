"""What can be changed in the console, changed in a real browser: each after a preview, and then true of the cluster."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from ottla.admin.acls import Acl, list_acls
from ottla.admin.groups import committed_offsets
from ottla.admin.transactions import describe_transaction
from ottla.admin.users import list_users
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.model import TopicPartition
from tests.console.conftest import LIMIT_MS, SCRIPT, Stage, Visitor, choose, console_url
from tests.hanging import UNVERIFIED, hang
from tests.node_process import running_node

pytestmark = pytest.mark.slow
expect.set_options(timeout=LIMIT_MS)

AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A node with an authorizer, on which partitions believe whoever says that a transaction is open."""
    settings = ("--set", AUTHORIZER, "--set", "super.users=User:ANONYMOUS", *UNVERIFIED)
    with running_node(tmp_path_factory.mktemp("guarded"), *settings) as node:
        yield Stage(node, console_url(node))


@contextmanager
def asking(stage: Stage) -> Iterator[BlockingClient]:
    with BlockingClient(ClientSettings.parse({"bootstrap.servers": stage.node.bootstrap})) as client:
        yield client


@contextmanager
def visiting(browser: Browser, stage: Stage) -> Iterator[Visitor]:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        visitor = Visitor(context.new_page(), stage.url)
        yield visitor
        assert visitor.complaints == []


def confirm(page: Page, button: str) -> None:
    page.locator(".dialog").get_by_role("button", name=button).click()


def test_rights_are_given_and_taken_away(browser: Browser, guarded: Stage) -> None:
    with visiting(browser, guarded) as visitor, asking(guarded) as client:
        page = visitor.go("/acls")
        expect(page.get_by_text("only super users may do anything")).to_be_visible()
        page.get_by_role("button", name="Preview").click()
        expect(page.locator(".q-notification")).to_contain_text("Write the principal as User:ann")
        page.get_by_label("Principal, as User:ann").fill(f"User:{SCRIPT}")
        page.get_by_label("Operations").click()
        for operation in ("read", "describe"):
            page.get_by_role("option", name=operation, exact=True).click()
        page.keyboard.press("Escape")
        page.get_by_label("Name", exact=True).fill("orders-")
        choose(page, "Which names", "every name that begins so")
        page.get_by_role("button", name="Preview").click()
        said = page.locator(".dialog li")
        expect(said).to_have_count(2)
        expect(said.first).to_have_text(
            f"User:{SCRIPT} may read on every topic whose name begins with orders-, from any host."
        )
        assert list_acls(client) == []  # So far it is a preview.
        confirm(page, "Add it")
        row = page.locator("tr", has_text="describe")
        expect(row).to_contain_text(f"User:{SCRIPT}")
        wanted = [
            Acl(
                resource="topic",
                name="orders-",
                pattern="prefixed",
                principal=f"User:{SCRIPT}",
                operation=operation,
            )
            for operation in ("describe", "read")
        ]
        assert list_acls(client) == wanted
        row.get_by_role("button").click()
        confirm(page, "Leave it as it is")
        expect(page.locator(".dialog")).to_have_count(0)
        row.get_by_role("button").click()
        confirm(page, "Remove it")
        expect(page.locator("tbody tr")).to_have_count(1)
        assert list_acls(client) == wanted[1:]
        assert page.evaluate("window.harmed") is None


def test_users_come_and_go(browser: Browser, guarded: Stage) -> None:
    with visiting(browser, guarded) as visitor, asking(guarded) as client:
        page = visitor.go("/users")
        expect(page.get_by_text("The cluster knows no SCRAM user. Make one below.")).to_be_visible()
        for said in ("ann can log in with SCRAM-SHA-512", "ann gets a new password for SCRAM-SHA-512"):
            page.get_by_label("User", exact=True).fill("ann")
            page.get_by_label("Password", exact=True).fill("hush")
            page.get_by_role("button", name="Preview").click()
            expect(page.locator(".dialog")).to_contain_text(said)
            confirm(page, "Set it")
            expect(page.locator(".dialog")).to_have_count(0)
            expect(page.locator("tr[data-key=ann]")).to_contain_text("SCRAM-SHA-512, 8,192 iterations")
        assert [(user.name, len(user.credentials)) for user in list_users(client)] == [("ann", 1)]
        page.get_by_role("button", name="Remove SCRAM-SHA-512 of ann").click()
        confirm(page, "Remove it")
        expect(page.get_by_text("The cluster knows no SCRAM user.")).to_be_visible()
        assert list_users(client) == []


def test_transactions_are_ended(browser: Browser, guarded: Stage) -> None:
    """One that a coordinator knows, by fencing its producer; one that hangs, by a marker."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    bootstrap = guarded.node.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic("open", 1), NewTopic("hung", 1)]).values():
        done.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("open", b"never seen")
    assert producer.flush(60) == 0
    hang(guarded.node.address, "hung")
    with visiting(browser, guarded) as visitor, asking(guarded) as client:
        page = visitor.go("/transactions")
        expect(page.locator("tr[data-key=payments]")).to_contain_text("open-0")
        expect(page.get_by_text("None hangs that was silent for 15 minutes.")).to_be_visible()
        page.get_by_role("button", name="Abort the transaction of payments").click()
        expect(page.locator(".dialog")).to_contain_text("its producer is turned away from then on")
        confirm(page, "Abort it")
        expect(page.locator("tr[data-key=payments]")).to_contain_text("empty")
        assert describe_transaction(client, "payments").partitions == ()
        page.get_by_label("Not written to for, in minutes").fill("0")
        page.get_by_role("button", name="Look").click()
        page.get_by_role("button", name="Abort the transaction in hung-0").click()
        confirm(page, "Abort it")
        expect(page.get_by_text("None hangs that was silent for 0 minutes.")).to_be_visible()
    producer.purge()


def test_a_console_that_changes_nothing_has_no_buttons_and_obeys_none(browser: Browser, guarded: Stage) -> None:
    from tests.console.test_process import console

    with console("--host", "0.0.0.0", bootstrap=guarded.node.bootstrap) as url, browser.new_context() as context:
        visitor = Visitor(context.new_page(), url)
        for path in ("/acls", "/users", "/transactions"):
            page = visitor.go(path)
            expect(page.locator(".row-button")).to_have_count(0)
            for event in ("remove-acl", "remove-login", "abort-transaction", "abort-hanging"):
                page.evaluate(f"emitEvent('{event}', 'anything')")
        for path in ("/acls", "/users"):
            expect(visitor.go(path).get_by_text("This console changes nothing")).to_be_visible()


def test_a_group_is_moved(stage: Stage, visitor: Visitor) -> None:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Position

    consumer = Consumer({"bootstrap.servers": stage.node.bootstrap, "group.id": "moved"})
    consumer.commit(offsets=[Position("orders", 0, 10), Position("orders", 1, 20)], asynchronous=False)
    consumer.close()

    def committed() -> dict[int, int]:
        with asking(stage) as client:
            return {key.partition: each.offset for key, each in committed_offsets(client, "moved").items()}

    def move(where: str, to: str, value: str, *, shown: list[str]) -> None:
        choose(page, "Where", where)
        choose(page, "To", to)
        page.get_by_label("Offset, number or time").fill(value)
        page.get_by_role("button", name="Preview the move").click()
        expect(page.locator(".dialog tbody td")).to_have_text(shown)
        confirm(page, "Move it")
        expect(page.locator(".dialog")).to_have_count(0)

    with asking(stage) as client:
        assert set(committed_offsets(client, "moved")) == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    page = visitor.go("/groups/moved")
    move("orders-1", "an offset", "33", shown=["20", "33", "27 records"])
    assert committed() == {0: 10, 1: 33}
    expect(page.locator("tr", has_text="orders-1").first).to_contain_text("27 records")
    move(
        "all partitions",
        "so many records on (negative: back)",
        "-5",
        shown=["10", "5", "55 records", "33", "28", "32 records"],
    )
    assert committed() == {0: 5, 1: 28}
    move(
        "all partitions",
        "a time (UTC)",
        "2023-11-14T22:13:20.100",
        shown=["5", "50", "10 records", "28", "50", "10 records"],
    )
    assert committed() == {0: 50, 1: 50}


def test_a_group_with_members_is_not_moved(stage: Stage, visitor: Visitor) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": stage.node.bootstrap, "group.id": "busy", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(60)
    assert message is not None
    consumer.commit(message, asynchronous=False)
    try:
        page = visitor.go("/groups/busy")
        page.get_by_role("button", name="Preview the move").click()
        confirm(page, "Move it")
        expect(page.locator(".q-notification")).to_contain_text("stop them first")
    finally:
        consumer.close()


# Schemas.


def register(registry: str, subject: str, schema: object, kind: str = "AVRO") -> int:
    connection = http.client.HTTPConnection(urlsplit(registry).netloc, timeout=60)
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = json.dumps({"schema": text, "schemaType": kind})
    connection.request("POST", f"/subjects/{subject}/versions", body, {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return int(answer["id"])


def order(*fields: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *fields]}


NOTE: dict[str, object] = {"name": "note", "type": ["null", "string"], "default": None}


def test_schemas_are_compared(stage: Stage, visitor: Visitor) -> None:
    count: dict[str, object] = {"name": "count", "type": "int", "default": 1}
    first, _, newest = (
        register(stage.registry, "compared-value", schema) for schema in (order(), order(NOTE), order(NOTE, count))
    )
    page = visitor.go("/schemas?q=compared")
    row = page.locator("tr[data-key='compared-value']")
    expect(row.locator("td")).to_have_text(["avro", "3", str(newest)])
    row.get_by_role("link").click()
    expect(page.locator("h1")).to_have_text("compared-value")
    expect(page.locator(".facts")).to_contain_text("backward")
    expect(page.locator("h2")).to_have_text(
        [f"Version 3: avro, schema id {newest}", "What version 3 has changed since version 2"]
    )
    expect(page.locator(".diff .added", has_text='"count"')).to_have_count(1)
    expect(page.locator(".diff .added", has_text='"note"')).to_have_count(0)
    page.get_by_role("navigation", name="Compare with").get_by_role("link", name="version 1").click()
    expect(page.locator(".diff .added", has_text='"note"')).to_have_count(1)
    page.get_by_role("navigation", name="Show").get_by_role("link", name="version 1").click()
    expect(page.locator("h2").first).to_have_text(f"Version 1: avro, schema id {first}")
    visitor.go("/schemas/subject?name=nobody")
    expect(page.get_by_role("alert")).to_contain_text("not found")


@pytest.mark.parametrize(
    ("kind", "schema", "typed", "wrong"),
    [
        ("AVRO", order(NOTE), {"id": 7, "note": None}, '{"id": "seven"}'),
        ("JSON", {"type": "object"}, {"id": 7, "note": "é"}, "{id: 7}"),
        (
            "PROTOBUF",
            'syntax = "proto3"; message Order { int32 id = 1; string note = 2; }',
            {"id": 7, "note": "x"},
            "7",
        ),
    ],
    ids=["avro", "json", "protobuf"],
)
def test_a_record_is_written_by_its_schema(
    stage: Stage, visitor: Visitor, kind: str, schema: object, typed: dict[str, object], wrong: str
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"typed-{kind.lower()}"
    admin = AdminClient({"bootstrap.servers": stage.node.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(60)
    schema_id = register(stage.registry, f"{topic}-value", schema, kind)
    page = visitor.go(f"/topics/{topic}/produce")
    expect(page.get_by_label("The value is")).to_have_value(f"JSON, by the newest schema of {topic}-value")
    page.get_by_label("Value", exact=True).fill(wrong)
    page.get_by_role("button", name="Produce").click()
    expect(page.locator(".q-notification")).to_be_visible()
    page.get_by_label("Value", exact=True).fill(json.dumps(typed))
    page.get_by_role("button", name="Produce").click()
    page.get_by_role("link", name="Look at it").click()
    page.locator(".record summary").first.click()
    expect(page.locator(".record").first).to_contain_text(f"{kind.lower()}, schema {schema_id}")
    assert json.loads(page.locator(".record pre").last.inner_text()) == typed
