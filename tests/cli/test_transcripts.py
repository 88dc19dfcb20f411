"""Golden transcripts: what a person sees who works with `ottla` on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.transcripts import replay
from tests.node_process import NodeProcess, running_node

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One for all: each transcript has topics and groups of its own."""
    with running_node(tmp_path_factory.mktemp("node"), "--registry", "off") as node:
        yield node


@pytest.mark.slow
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_session_goes_as_it_is_written(
    path: Path, node: NodeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "config.toml").write_text(
        f'current = "test"\n[profiles.test]\n"bootstrap.servers" = "{node.bootstrap}"\n'
    )
    went = replay(path.read_text(), tmp_path, {"BOOTSTRAP": node.bootstrap, "HERE": str(tmp_path)})
    if request.config.getoption("--rewrite"):
        path.write_text(went)
    assert went == path.read_text()
