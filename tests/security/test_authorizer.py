"""Who may do what, told as stories. `tests/oracle/test_authorizer.py` asks Kafka's own authorizer as well."""

from __future__ import annotations

from ottla.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from ottla.security import authorizer as module
from ottla.security.authorizer import Authorizer

ADA, BOB = "User:ada", "User:bob"
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
TOPIC = ResourceType.TOPIC


def entry(
    operation: Operation,
    name: str = "orders",
    *,
    principal: str = ADA,
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(TOPIC, name, pattern, principal, host, operation, permission)


def test_nothing_is_allowed_that_nobody_allowed() -> None:
    assert not Authorizer().may(ADA, HERE, Operation.READ, TOPIC, "orders")


def test_a_super_user_may_do_what_is_denied() -> None:
    acls = [entry(Operation.ALL, "*", permission=Permission.DENY)]
    assert Authorizer(acls, super_users=frozenset({ADA})).may(ADA, HERE, Operation.READ, TOPIC, "orders")


def test_a_denial_wins_over_every_permission() -> None:
    rules = Authorizer(
        [
            entry(Operation.READ, "orders", principal="User:*"),
            entry(Operation.ALL, "ord", pattern=PatternType.PREFIXED, permission=Permission.DENY),
        ]
    )
    assert not rules.may(ADA, HERE, Operation.READ, TOPIC, "orders")
    assert rules.may(BOB, HERE, Operation.READ, TOPIC, "orders")


def test_an_entry_may_hold_for_one_host_only() -> None:
    rules = Authorizer([entry(Operation.READ, host=HERE)])
    assert rules.may(ADA, HERE, Operation.READ, TOPIC, "orders")
    assert not rules.may(ADA, ELSEWHERE, Operation.READ, TOPIC, "orders")


def test_who_may_read_may_describe_but_a_denial_of_reading_does_not_deny_that() -> None:
    assert Authorizer([entry(Operation.READ)]).may(ADA, HERE, Operation.DESCRIBE, TOPIC, "orders")
    rules = Authorizer([entry(Operation.DESCRIBE), entry(Operation.READ, permission=Permission.DENY)])
    assert rules.may(ADA, HERE, Operation.DESCRIBE, TOPIC, "orders")


def test_where_no_entry_speaks_of_a_resource_everybody_may_if_so_configured() -> None:
    rules = Authorizer([entry(Operation.READ, "orders", principal=BOB)], allow_where_none=True)
    assert rules.may(ADA, HERE, Operation.WRITE, TOPIC, "payments")
    assert not rules.may(ADA, HERE, Operation.WRITE, TOPIC, "orders")


def test_a_prefix_covers_what_begins_with_it_and_nothing_else() -> None:
    rules = Authorizer([entry(Operation.READ, "ord", pattern=PatternType.PREFIXED)])
    assert rules.may(ADA, HERE, Operation.READ, TOPIC, "ord")
    assert rules.may(ADA, HERE, Operation.READ, TOPIC, "orders")
    assert not rules.may(ADA, HERE, Operation.READ, TOPIC, "or")
    assert not rules.may(ADA, HERE, Operation.READ, ResourceType.GROUP, "orders")


def test_some_topic_is_writable_unless_all_that_is_allowed_is_denied() -> None:
    allowed = entry(Operation.WRITE, "orders")
    assert Authorizer([allowed]).may_for_some(ADA, HERE, Operation.WRITE, TOPIC)
    denied = entry(Operation.WRITE, "ord", pattern=PatternType.PREFIXED, permission=Permission.DENY)
    assert not Authorizer([allowed, denied]).may_for_some(ADA, HERE, Operation.WRITE, TOPIC)


def test_remembered_answers_are_bounded() -> None:
    rules = Authorizer([entry(Operation.READ)])
    for number in range(module.ANSWERS_MAX + 10):
        rules.may(ADA, HERE, Operation.READ, TOPIC, f"topic-{number}")
    assert len(rules._answers) <= module.ANSWERS_MAX
    assert rules.may(ADA, HERE, Operation.READ, TOPIC, "orders")
