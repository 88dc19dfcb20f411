"""Random access control entries, and the same questions about them to our authorizer and to Kafka's own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest

from ottla.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from ottla.security.authorizer import Authorizer
from tests.oracle.apache_kafka import compiled, java

pytestmark = pytest.mark.oracle

SETS = 1_500
QUESTIONS = 12
NAMES = ("orders", "orders-eu", "ord", "o", "pay", "*", "hardcode", "orders-eu-1")
PRINCIPALS = ("User:ada", "User:bob", "User:*", "Group:ops")
HOSTS = ("127.0.0.1", "127.0.0.2", "*")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = tuple(each for each in Operation if each not in (Operation.UNKNOWN, Operation.ANY))
ASKED = tuple(each for each in OPERATIONS if each is not Operation.ALL)


def an_acl(random: Random) -> Acl:
    return Acl(
        random.choice(KINDS),
        random.choice(NAMES),
        random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        random.choice(PRINCIPALS),
        random.choice(HOSTS),
        random.choice(OPERATIONS),
        random.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


def a_set(random: Random) -> tuple[list[str], list[bool]]:
    """Lines for Kafka's authorizer, and our own answers to the questions among them."""
    super_users = random.choice(((), (), ("User:ada",)))
    allow_where_none = random.random() < 0.3
    acls = {an_acl(random) for _ in range(random.randrange(7))}
    ours = Authorizer(acls, super_users=frozenset(super_users), allow_where_none=allow_where_none)
    lines = [f"rules {';'.join(super_users) or '-'} {str(allow_where_none).lower()}"]
    lines += [f"acl {' '.join(str(int(part)) if isinstance(part, int) else part for part in acl)}" for acl in acls]
    answers = []
    for _ in range(QUESTIONS):
        principal, host = random.choice(("User:ada", "User:bob", "Group:ops")), random.choice(HOSTS[:2])
        operation, kind, name = random.choice(ASKED), random.choice(KINDS), random.choice(NAMES)
        if name == "*" or random.random() < 0.25:
            lines.append(f"some {principal} {host} {int(operation)} {int(kind)}")
            answers.append(ours.may_for_some(principal, host, operation, kind))
        else:
            lines.append(f"may {principal} {host} {int(operation)} {int(kind)} {name}")
            answers.append(ours.may(principal, host, operation, kind, name))
    return lines, answers


def test_the_same_is_allowed() -> None:
    random = Random(20_261_115)
    lines: list[str] = []
    ours: list[bool] = []
    for _ in range(SETS):
        asked, answers = a_set(random)
        lines += asked
        ours += answers
    source = Path(__file__).with_name("Authorizations.java")
    done = subprocess.run(
        [java(), "-cp", compiled(source), "Authorizations"],
        input="".join(line + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    theirs = [line == "1" for line in done.stdout.splitlines()]
    assert len(theirs) == len(ours), done.stderr[-2000:]
    place = 0
    for number, line in enumerate(lines):
        if line.startswith(("may", "some")):
            assert ours[place] == theirs[place], f"line {number}: {line}; Kafka says {theirs[place]}"
            place += 1
    assert len(ours) // 10 < sum(ours) < len(ours) * 9 // 10, "questions that all have one answer prove nothing"
