"""What docs/http.md shows is typed, with curl, and comes out so."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.sessions import run_ottla
from tests.documents.pages import ROOT, Typed, matches, parts
from tests.gateway.conftest import registry_url
from tests.node_process import running_node

PAGE = ROOT / "docs" / "http.md"


@pytest.mark.slow
def test_records_are_written_read_and_followed_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))
    write, read, follow = (part for part in parts(PAGE.read_text()) if isinstance(part, Typed))
    with running_node(tmp_path) as node:
        assert run_ottla(["topic", "create", "orders", "-b", node.bootstrap])[0] == 0

        def typed(part: Typed) -> list[str]:
            return [*shlex.split(part.command.replace("http://127.0.0.1:8081", registry_url(node))), "-sS", "-m", "60"]

        def said(part: Typed) -> list[str]:
            return subprocess.run(typed(part), capture_output=True, text=True, check=True).stdout.splitlines()

        assert matches(write.expected, said(write))
        (shown,) = [json.loads(line) for line in said(read)]
        assert [(each["key"]["data"], each["value"]["data"]) for each in shown["data"]] == [(42, {"total": 9.5})]
        with subprocess.Popen(typed(follow), stdout=subprocess.PIPE, text=True) as tail:
            assert tail.stdout is not None
            # Whoever begins at the end sees what comes then: written from the moment on at which it listens.
            lines = ["", ""]
            writer = subprocess.Popen(["sh", "-c", f"while {shlex.join(typed(write))} >/dev/null; do sleep 0.1; done"])
            try:
                lines = [tail.stdout.readline().rstrip("\n") for _ in range(2)]
            finally:
                writer.kill()
                writer.wait()
                tail.kill()
    position, event = lines
    assert re.fullmatch(r"id: 0:\d+", position)
    assert re.fullmatch(r"id: 0:\d+", follow.expected[0])
    wanted = re.findall(r'"(\w+)":', follow.expected[1])
    assert list(json.loads(event.removeprefix("data: "))) == wanted
