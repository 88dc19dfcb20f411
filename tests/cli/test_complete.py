"""What the shell offers: asked as shells ask it, by the environment that `--install-completion` sets up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.sessions import run_ottla
from tests.node_process import running_node


def offered(monkeypatch: pytest.MonkeyPatch, *words: str) -> set[str]:
    """After `ottla` and these words, of which the last is begun, Tab is pressed."""
    with monkeypatch.context() as patch:
        patch.setenv("_OTTLA_COMPLETE", "complete_bash")
        patch.setenv("COMP_WORDS", " ".join(("ottla", *words)))
        patch.setenv("COMP_CWORD", str(len(words)))
        status, out, err = run_ottla([])
    assert (status, err) == (0, "")
    return set(out.decode().split())


def test_commands_and_options_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered(monkeypatch, "to") == {"topic"}
    assert offered(monkeypatch, "topic", "de") == {"describe", "delete"}
    assert {"--partitions", "--replicas"} <= offered(monkeypatch, "topic", "create", "--")


def test_a_cluster_that_is_not_there_offers_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))
    assert offered(monkeypatch, "topic", "describe", "-b", "127.0.0.1:1", "o") == set()


@pytest.mark.slow
def test_names_are_offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    monkeypatch.setenv("OTTLA_CONFIG", str(config))
    with running_node(tmp_path / "node", "--registry", "off") as node:
        config.write_text(
            f'current = "here"\n[profiles.here]\n"bootstrap.servers" = "{node.bootstrap}"\n'
            '[profiles.nowhere]\n"bootstrap.servers" = "127.0.0.1:1"\n'
        )
        assert run_ottla(["topic", "create", "orders", "order-lines", "payments"])[0] == 0
        assert run_ottla(["group", "seek", "billing", "--new", "--to", "end", "orders"])[0] == 0
        assert offered(monkeypatch, "topic", "describe", "ord") == {"orders", "order-lines"}
        assert offered(monkeypatch, "consume", "pay") == {"payments"}
        assert offered(monkeypatch, "group", "describe", "") == {"billing"}
        assert offered(monkeypatch, "topic", "list", "--profile", "no") == {"nowhere"}
        assert offered(monkeypatch, "topic", "describe", "--profile", "nowhere", "ord") == set()
