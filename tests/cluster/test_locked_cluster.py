"""The locked cluster of docs/security.md, word for word but for the ports: it starts, and lets in whom it should."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.runtime.system import free_ports

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Page:
    """Carries out what the page says, block by block, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        text = (ROOT / "docs/security.md").read_text()
        ports = iter(free_ports("127.0.0.1", 9))
        # The page counts its ports with the nodes; here they are whatever is free.
        for tens in ("1909", "1907", "1908"):
            chosen = [str(next(ports)) for _ in range(3)]
            text = text.replace(f"{tens}$n", f"$(echo {' '.join(chosen)} | cut -d' ' -f$n)")
            for n, port in enumerate(chosen, 1):
                text = text.replace(f"{tens}{n}", port)
        self.blocks = BLOCK.findall(text)
        bin_directory = directory / "bin"
        bin_directory.mkdir()
        command = bin_directory / "ottla"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli "$@"\n')
        command.chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}"}
        self._shells: list[subprocess.Popen[bytes]] = []

    def shell(self, text: str) -> None:
        """Nodes that a block starts live on in its process group."""
        log = self.directory / f"shell-{len(self._shells)}.log"
        with log.open("wb") as output:
            shell = subprocess.Popen(
                ["sh", "-e", "-c", text],
                cwd=self.directory,
                env=self._environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._shells.append(shell)
        assert shell.wait(60) == 0, log.read_text()

    def python(self, text: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=self.directory, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{done.stderr}\n{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in sorted(self.directory.glob("node-*.log")))

    def stop(self) -> None:
        for shell in self._shells:
            try:
                os.killpg(shell.pid, signal.SIGTERM)
            except ProcessLookupError:
                continue


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    page = Page(tmp_path)
    yield page
    page.stop()


STRANGERS = """
import time
from confluent_kafka.admin import AdminClient

def refusal(user, password, **more):
    told = []
    client = AdminClient({**settings(user, password), "error_cb": told.append, **more})
    until = time.monotonic() + 60
    while not told and time.monotonic() < until:
        client.poll(0.1)
    return told[0].name()

print(refusal("alice", "wrong"))
print(refusal("nobody", "alice-secret"))
print(refusal("alice", "alice-secret", **{"security.protocol": "SASL_PLAINTEXT", "ssl.ca.location": ""}))
print(sorted(AdminClient(settings("alice", "alice-secret")).list_topics(timeout=60).topics))
"""


@pytest.mark.slow
def test_the_page_makes_a_cluster_that_only_lets_in_whom_it_should(page: Page) -> None:
    *shells, (kind, program) = page.blocks
    assert [shell_kind for shell_kind, _ in shells] == ["sh"] * 3
    assert kind == "python"
    for _, block in shells:
        page.shell(block)
    assert page.python(program) == "a teapot\n"
    definitions = program.partition("\nadmin = ")[0]
    said = page.python(definitions + STRANGERS).splitlines()
    assert said[:2] == ["_AUTHENTICATION", "_AUTHENTICATION"]
    assert said[2] in ("_TRANSPORT", "_ALL_BROKERS_DOWN")  # Whoever does not speak TLS is hung up on.
    assert said[3] == "['orders']"  # What she may not describe she does not see.
    assert "Traceback" not in page.logs()
