"""The table against Apache Kafka's own definitions."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from ottla.config.key import GzipLevel, ListOf, NonEmpty, OneOf, Range, Scope, ShareOffsetReset, ThrottledReplicas
from ottla.config.table import TOPIC_SYNONYMS, broker_key, broker_synonyms, group_synonym, keys, lookup

from . import recorded

OWN = "ottla."
"""What the keys begin with that Kafka does not have."""
MODES = {"READ_ONLY": None, "PER_BROKER": "per-broker", "CLUSTER_WIDE": "cluster-wide"}


def test_every_key_of_kafka_is_here_and_no_other() -> None:
    theirs = Counter((row[0], row[1]) for row in recorded.table()["keys"])
    ours = Counter((scope.name, name) for scope in Scope for name in keys(scope) if not name.startswith(OWN))
    assert ours == theirs
    assert sum(not name.startswith(OWN) for name in keys(Scope.BROKER)) == 363


@pytest.mark.parametrize("row", recorded.table()["keys"], ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_row_says_what_kafka_says(row: recorded.KeyRow) -> None:
    scope, name, kind, default, importance, required, internal, mode, validator, fields = row
    key = lookup(name, Scope[scope])
    assert key is not None
    assert (key.type.name, key.default, key.importance.name) == (kind, default, importance)
    assert (key.required, key.internal, MODES[key.update.name]) == (required, internal, mode)
    words = [
        word.strip() for word in (fields.get("validString") or fields.get("validStrings") or "[]")[1:-1].split(",")
    ]
    words = [word for word in words if word]
    match key.rule:
        case None:
            assert validator in (None, "NonNullValidator")
        case Range():
            assert validator == "Range"
            assert key.rule.least == float(fields["min"])
            assert key.rule.most == (None if fields["max"] == "null" else float(fields["max"]))
        case OneOf():
            assert validator == ("CaseInsensitiveValidString" if key.rule.ignore_case else "ValidString")
            assert list(key.rule.words) == words
        case ListOf() if validator == "ValidList":
            assert list(key.rule.words) == words
            assert key.rule.may_be_empty == (fields["isEmptyAllowed"] == "true")
        case ListOf():
            # Their form is checked where they are parsed.
            assert name in ("controller.quorum.bootstrap.servers", "controller.quorum.voters")
        case NonEmpty():
            assert validator == "NonEmptyString"
        case GzipLevel():
            assert validator == "LambdaValidator"
        case ThrottledReplicas():
            assert validator == "ThrottledReplicaListValidator"
        case ShareOffsetReset():
            assert validator == "Validator"
        case _:
            pytest.fail(f"unexpected rule {key.rule!r}")


def test_documentation_is_one_sentence() -> None:
    for scope in Scope:
        for key in keys(scope).values():
            assert re.fullmatch(r"[A-Z`'].*[A-Za-z0-9)`]\.", key.documentation), key


def test_synonyms_are_those_of_kafka() -> None:
    theirs = recorded.table()
    for name, names in theirs["topic_synonyms"].items():
        assert list(broker_synonyms(TOPIC_SYNONYMS[name])) == names
    assert set(TOPIC_SYNONYMS) == set(theirs["topic_synonyms"])
    for name in keys(Scope.GROUP):
        assert group_synonym(name) == theirs["group_synonyms"][name]
    for name in keys(Scope.BROKER):
        assert list(broker_synonyms(name)) == theirs["broker_synonyms"].get(name, [name])


def test_a_listener_prefix_is_seen_through() -> None:
    key = broker_key("listener.name.internal.ssl.keystore.password")
    assert key is not None
    assert key.name == "ssl.keystore.password"
    mechanism = broker_key("listener.name.internal.scram-sha-256.sasl.jaas.config")
    assert mechanism is not None
    assert mechanism.sensitive
    assert broker_key("listener.name.internal.nope") is None
    assert broker_key("nope") is None


def test_a_starting_node_loads_only_what_it_asks_for() -> None:
    script = (
        "import sys; from ottla.config.table import lookup; from ottla.config.key import Scope\n"
        "loaded = lambda: sorted(n for n in sys.modules if n.startswith('ottla.config.rows.'))\n"
        "assert not loaded(), loaded()\n"
        "lookup('retention.ms', Scope.TOPIC)\n"
        "assert loaded() == ['ottla.config.rows.topic'], loaded()\n"
        "assert not {'dataclasses', 'inspect', 'ast'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{script}"], check=True)
