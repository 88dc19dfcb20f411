"""Golden transcripts: what a person sees who works with `ottla` on the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.sessions import replay
from tests.node_process import running_node

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
NO_REGISTRY = ("--registry", "off")
AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OPTIONS = {
    "acl": (*NO_REGISTRY, "--set", AUTHORIZER, "--set", "super.users=User:ANONYMOUS"),
    "schema": (),
    "protobuf": (),
}
"""How the node of a session is started, where that matters."""


@pytest.mark.slow
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_session_goes_as_it_is_written(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Each has a fresh node."""
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("COLUMNS", "120")
    here = tmp_path / "here"
    here.mkdir()
    with running_node(tmp_path / "node", *OPTIONS.get(path.stem, NO_REGISTRY)) as node:
        (tmp_path / "config.toml").write_text(
            f'current = "test"\n[profiles.test]\n"bootstrap.servers" = "{node.bootstrap}"\n'
        )
        names = {"BOOTSTRAP": node.bootstrap, "HERE": str(here), "NODE": str(tmp_path / "node" / "data" / "node-1")}
        schemas = re.search(r"^schemas: (\S+)$", node.log(), re.MULTILINE)
        if schemas is not None:
            names["SCHEMAS"] = schemas[1]
        went = replay(path.read_text(), here, names)
    if request.config.getoption("--rewrite"):
        path.write_text(went)
    assert went == path.read_text()
