"""Somebody who may little uses the command line: what is allowed works, and what is not says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.sessions import run_ottla
from tests.locked_site import two_doors

PRODUCED = b"a teapot\n"
RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.mark.slow
def test_whoever_may_read_one_topic_reads_it_and_hears_what_it_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))

    def ok(*words: str, stdin: bytes = b"") -> str:
        status, out, err = run_ottla(list(words), stdin)
        assert (status, err) == (0, "")
        return out.decode()

    def refused(*words: str) -> str:
        status, _, err = run_ottla(list(words))
        assert status == 1
        return err.strip()

    with two_doors(tmp_path / "node", "--registry", "off", "--no-console", settings=RIGHTS) as doors:
        admin = ("-b", doors.open)
        protocol = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-512")
        door = ("-b", doors.locked, *protocol, "-X", "sasl.username=ann", "-X")
        ann = (*door, "sasl.password=her secret")
        ok("user", "set", "ann", *admin, stdin=b"her secret\n")
        ok("topic", "create", "orders", "secret", *admin)
        ok("acl", "add", "User:ann", "read", "write", "--resource", "topic", "--name", "orders", *admin)
        ok("produce", "orders", *ann, stdin=PRODUCED)

        listed = ok("topic", "list", *ann)
        assert ("orders" in listed, "secret" in listed) == (True, False)
        status, out, err = run_ottla(["topic", "describe", "orders", *ann])
        assert (status, out[:19]) == (0, b"orders  1 partition")
        assert err == "Its configs are not shown: you have no right to describe them.\n"
        assert "silent" not in ok("cluster", "status", *ann)
        assert ok("consume", "orders", "-o", "beginning", "-e", *ann) == PRODUCED.decode()

        told = refused("consume", "secret", "-e", *ann)
        assert told == (
            "ottla: The topic secret cannot be looked up: you have no right to describe it, if it exists; log in as "
            "somebody who has it, or give it with `ottla acl add`."
        )
        told = refused("consume", "orders", "-G", "shop", "-o", "beginning", "-e", *ann)
        assert told.startswith("ottla: You have no right to read as the group shop: choose another with -G")
        told = refused("topic", "create", "mine", *ann)
        assert "mine cannot be created" in told
        assert "uthorization" in told or "no right" in told

        # Why a record without a key is not taken can be said only to whom the topic's configs may be told.
        ok("topic", "alter", "orders", "-c", "cleanup.policy=compact", *admin)
        assert run_ottla(["produce", "orders", *admin], PRODUCED)[2].startswith("ottla: A record without a key was not")
        assert run_ottla(["produce", "orders", *ann], PRODUCED)[2].startswith("ottla: A record was not taken: ")

        status, found, _ = run_ottla(["doctor", *ann])
        assert (status, b"advertised.listeners" in found) == (1, False)
        assert b"Ask as somebody who may describe the cluster." in found

        told = refused("topic", "list", *door, "sasl.password=wrong")
        assert told.endswith("See sasl.mechanism, sasl.username and sasl.password.")
        told = refused("topic", "list", "-b", doors.locked)
        assert "hung up (does security.protocol fit that listener?)" in told
