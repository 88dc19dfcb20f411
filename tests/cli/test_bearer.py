"""OAUTHBEARER on the command line: a token from a file, by a profile, for what asks and for what librdkafka does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.runtime.system import free_ports
from tests.cli.sessions import run_ottla
from tests.node_process import running_node
from tests.tokens import Provider


@pytest.mark.slow
def test_a_profile_with_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    provider, token = Provider(), tmp_path / "token"
    (tmp_path / "keys.json").write_bytes(provider.document())
    token.write_text(provider.token(aud="kafka"))
    plain, locked, controller = free_ports("127.0.0.1", 3)
    settings = {
        "listeners": f"PLAINTEXT://localhost:{plain},LOCKED://localhost:{locked},CONTROLLER://localhost:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOCKED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"localhost:{controller}",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    with running_node(tmp_path / "node", "--registry", "off", *arguments):
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
        options = [part for key, value in properties.items() for part in ("-X", f"{key}={value}")]
        added = run_ottla(["profile", "add", "locked", "-b", f"localhost:{locked}", *options])
        assert added == (0, b"profile locked saved\n", "")
        assert run_ottla(["topic", "create", "orders"])[0] == 0
        assert run_ottla(["produce", "orders"], b"by token\n") == (0, b"1 record to orders\n", "")
        assert run_ottla(["consume", "orders", "-o", "beginning", "-e"])[1] == b"by token\n"
        assert [json.loads(line)["name"] for line in run_ottla(["topic", "list", "--json"])[1].splitlines()] == [
            "orders"
        ]
        # A token that somebody else has signed.
        token.write_text(Provider().token(aud="kafka"))
        for command, stdin in ((["topic", "list"], b""), (["produce", "orders"], b"x\n")):
            status, out, said = run_ottla(command, stdin)
            assert (status, out) == (1, b"")
            assert said.startswith("ottla: ")
            assert said.count("\n") == 1
        # None at all.
        token.unlink()
        for command, stdin in ((["topic", "list"], b""), (["produce", "orders"], b"x\n")):
            status, _, said = run_ottla(command, stdin)
            assert (status, "token" in said) == (1, True), said
