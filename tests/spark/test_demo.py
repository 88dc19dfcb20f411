"""`make demo`, with fewer orders: it ends well, says what it did, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).parents[2]


def test_the_demo_loses_and_doubles_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--orders", "2000", "--seconds", "4"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUTF8": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"kill -9 \d+: node [123], which led orders-0, is gone\.", done.stdout)
    rows = [line for line in done.stdout.splitlines() if line.startswith("│")]
    assert len(rows) == 4
    assert {tuple(line.strip("│").split("│")[1:4]) for line in rows} == {tuple(rows[0].strip("│").split("│")[1:4])}
    assert all("2,000" in line and "✓" in line for line in rows)
    assert "Nothing was lost, nothing came twice." in done.stdout
    assert list(tmp_path.glob("ottla-demo-*")) == []
