"""The package installs with a compiler and without one, and works the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.slow

PROBE = """
from ottla.records import BatchBuilder, validate_produced, ValidationRules
from ottla.records._hot import NATIVE
builder = BatchBuilder()
builder.append(1_700_000_000_000, b"key", b"value")
validated = validate_produced(memoryview(builder.build()), ValidationRules(), 1_700_000_000_000)
print(NATIVE, validated.header.record_count)
"""


def build(target: Path, **environment: str) -> Path:
    source = target / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
            *("--disable-pip-version-check", "--wheel-dir", str(target), str(source)),
        ],
        check=True,
        env={**os.environ, **environment},
        cwd=target,
    )
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.mark.parametrize(("compiler", "native"), [("cc", True), ("no-such-compiler", False)])
def test_the_wheel_builds_with_and_without_a_compiler(tmp_path: Path, compiler: str, native: bool) -> None:
    wheel = build(tmp_path, CC=compiler)
    names = zipfile.ZipFile(wheel).namelist()
    for room in ("records", "records/cleaning", "records/columns", "wire"):
        assert any(name.startswith(f"ottla/{room}/_native.") and name.endswith(".so") for name in names) is native
    assert "ottla/py.typed" in names
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    # What Spark looks up by itself is a package beside ours.
    assert {"pyspark_ottla/__init__.py", "ottla/spark/log4j2.properties", *modules} <= set(names)
    unpacked = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(unpacked)
    answer = subprocess.run(
        [sys.executable, "-c", PROBE],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        cwd=tmp_path,
    )
    assert answer.stdout.split() == [str(native), "1"]
    # Whoever has installed it has the fixtures.
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "test_it.py").write_text(
        "def test_it(ottla):\n    ottla.create_topic('t')\n    assert ottla.produce('t', 'one').offset == 0\n"
    )
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        cwd=tmp_path / "project",
    )
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr
