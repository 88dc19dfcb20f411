"""The fixtures as others see them: a project of its own, and the documentation word for word, under a pytest of their
own, which finds the plugin by what pyproject.toml declares."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SAMPLE = Path(__file__).parent / "sample_project"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def python(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in `directory`, with Ottla installed as its pyproject says."""
    installed = directory.parent / "installed"
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    metadata = installed / "ottla_as_declared-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ottla-as-declared\nVersion: 1\n")
    lines = [f"{name} = {module}" for name, module in declared.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    paths = os.pathsep.join([str(ROOT / "src"), str(installed)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_a_project_that_knows_only_the_documentation(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_shop.py").write_text((SAMPLE / "test_shop.py").read_text())
    run = python(project, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "9 passed" in run.stdout


@pytest.mark.slow
def test_the_documentation_is_true_word_for_word(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs/testing.md").read_text())
    project = tmp_path / "project"
    project.mkdir()
    tests = [block for block in blocks if "def test_" in block]
    scripts = [block for block in blocks if "def test_" not in block]
    for number, block in enumerate(tests):
        (project / f"test_{number}.py").write_text(block)
    (script,) = scripts
    (project / "script.py").write_text(script)
    assert len(tests) == 6
    run = python(project, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "9 passed" in run.stdout
    without_pytest = subprocess.run(
        [sys.executable, "script.py"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (without_pytest.stdout, without_pytest.stderr) == ("1\nTrue\n", "")


@pytest.mark.slow
def test_what_the_node_said_is_shown_with_a_test_that_fails(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_it.py").write_text(
        """
import pytest

@pytest.mark.ottla(set={"num.partitons": 3})
def test_it(ottla):
    assert ottla.topics() == {"nothing": 1}

@pytest.mark.ottla(sets={})
def test_with_a_mark_that_is_wrong(ottla):
    pass

@pytest.mark.ottla(set={"num.partitions": "many"})
def test_with_a_value_that_is_wrong(ottla):
    pass
"""
    )
    run = python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert run.returncode == 1, run.stdout + run.stderr
    assert "log of ottla's node 1" in run.stdout
    assert "num.partitons" in run.stdout.partition("log of ottla's node 1")[2]
    assert "takes set={key: value} and nodes=number" in run.stdout
    assert "Node 1 cannot start" in run.stdout


def test_pytest_does_not_pay_for_the_plugin() -> None:
    """Loading it loads pytest and nothing of the node, nor of its clients."""
    script = (
        "import pytest, sys; before = set(sys.modules); import ottla.testing.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["ottla", "ottla.testing", "ottla.testing.plugin"]
