"""The audit of what is pinned, against a database of our own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools import audit

HOLES = {("old", "1.0"): ["GHSA-1", "PYSEC-2"]}


class Database(BaseHTTPRequestHandler):
    asked: list[dict[str, Any]]

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        Database.asked = queries
        results = []
        for query in queries:
            ids = HOLES.get((query["package"]["name"], query["version"]))
            results.append({"vulns": [{"id": each} for each in ids]} if ids else {})
        body = json.dumps({"results": results}).encode()
        self.send_response(200 if self.path == "/v1/querybatch" else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def database() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Database) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def constraints(directory: Path, text: str) -> list[str]:
    path = directory / "constraints.txt"
    path.write_text(text)
    return ["--constraints", str(path)]


def test_what_is_known_of_is_told(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = constraints(tmp_path, "# pinned\nnew==2.0\nold==1.0  # because\n")
    assert audit.main(["--database", database, *given]) == audit.FOUND
    assert capsys.readouterr().out == "old 1.0: GHSA-1\nold 1.0: PYSEC-2\n2 packages were audited, 2 known holes.\n"


def test_every_package_that_we_pin_is_asked_about(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["--database", database]) == audit.FINE
    lines = [line for line in audit.CONSTRAINTS.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) > 50
    assert len(Database.asked) == len(lines)
    assert capsys.readouterr().out == f"{len(lines)} packages were audited, 0 known holes.\n"


def test_where_nobody_answers_nothing_was_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--database", "http://127.0.0.1:1", *constraints(tmp_path, "new==2.0\n")]
    assert audit.main(given) == audit.UNREACHABLE
    assert capsys.readouterr().out.startswith("Nothing was audited: ")
    assert audit.main([*given, "--where-reachable"]) == audit.FINE
    assert capsys.readouterr().out.startswith("Nothing was audited: ")
