"""No API is served whose rights nobody has thought of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from ottla.broker.access.audit import AuditLog
from ottla.broker.access.authorisation import asker_of
from ottla.broker.api import CONTROLLER_HANDLERS, HANDLERS
from ottla.broker.connection import ClientConnection
from ottla.broker.context import Context
from ottla.broker.dispatch import ENVELOPE
from ottla.broker.forwarding import FORWARDABLE
from ottla.broker.services import Services
from ottla.metadata.acls import Operation, ResourceType
from ottla.model import ANONYMOUS
from ottla.runtime.clock import SystemClock
from ottla.security.authorizer import Authorizer
from ottla.security.rights import BROKER_RIGHTS, CONTROLLER_RIGHTS, Asked, may_be_asked


def test_every_api_of_a_broker_has_a_row() -> None:
    assert BROKER_RIGHTS.keys() == HANDLERS.keys() | {ENVELOPE}, "which the dispatcher takes itself"


def test_every_api_of_a_controller_has_a_row() -> None:
    assert CONTROLLER_RIGHTS.keys() == CONTROLLER_HANDLERS.keys()


def test_what_is_handed_on_is_judged_where_it_arrives() -> None:
    handed_on = {key for key, right in BROKER_RIGHTS.items() if right is Asked.BY_CONTROLLER}
    assert handed_on <= FORWARDABLE & CONTROLLER_RIGHTS.keys()
    assert not any(CONTROLLER_RIGHTS[key] in (Asked.NEVER, Asked.BY_CONTROLLER) for key in handed_on)
    assert handed_on >= {key for key, module in HANDLERS.items() if module == "forwarded"}


def test_what_a_row_does_not_name_is_asked_of_nobody() -> None:
    assert may_be_asked(0, Operation.WRITE, ResourceType.TOPIC, on_controller=False)
    assert not may_be_asked(0, Operation.READ, ResourceType.TOPIC, on_controller=False)
    assert may_be_asked(30, Operation.ALTER, ResourceType.CLUSTER, on_controller=True)
    assert not may_be_asked(30, Operation.ALTER, ResourceType.TOPIC, on_controller=True)
    assert not may_be_asked(30, Operation.ALTER, ResourceType.CLUSTER, on_controller=False)
    assert not may_be_asked(18, Operation.DESCRIBE, ResourceType.CLUSTER, on_controller=False)


def test_a_right_that_the_table_does_not_know_of_is_not_given() -> None:
    """To super users, either: whoever asks for another right than the row says is wrong, and is found out."""
    everything = Authorizer(super_users=frozenset({ANONYMOUS}))
    services = SimpleNamespace(authorizer=everything, audit=AuditLog(SystemClock()))
    connection = cast(ClientConnection, SimpleNamespace(principal=ANONYMOUS, host="10.0.0.7"))
    metadata = Context(cast(Services, services), connection, "PLAINTEXT", False, 3, 12, "test")
    assert metadata.may_topic(Operation.DESCRIBE, "t")
    assert not metadata.may_topic(Operation.WRITE, "t")
    assert metadata.silently.may_topic(Operation.WRITE, "t"), "what may be asked is no requirement"
    fetch = asker_of(cast(Services, services), connection, 1)
    assert fetch is not None
    assert fetch.may(Operation.READ, ResourceType.TOPIC, "t")
    assert not fetch.may(Operation.WRITE, ResourceType.TOPIC, "t")
