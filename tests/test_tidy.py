"""What no linter knows: the rooms' own rules, checked on the source itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "ottla"
PURE_ROOMS = ("partition", "raft", "metadata", "controller", "coordinator", "security", "schemas")
ASYNC_ROOMS = ("broker", "client", "gateway", "console", "testing", "cli", "sim", "runtime")
NODE_ROOMS = (*PURE_ROOMS, "broker", "client", "log", "records", "wire", "config", "metrics")
"""What runs in a node, beside `runtime`."""
OF_ROOMS = {
    "fastapi": ("console",),
    "nicegui": ("console",),
    "uvicorn": ("gateway",),
    "pyspark": ("spark", "cli"),
    "pyarrow": ("spark", "records"),
    "numpy": ("spark", "records"),
    "confluent_kafka": ("cli",),
}
"""Packages that a few rooms use, and the others must do without."""
MACHINE_MODULES = {"asyncio", "time", "socket", "random", "secrets", "threading", "os", "subprocess", "select", "uuid"}
GENERATED = SOURCE / "wire" / "messages"


def modules() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if GENERATED not in path.parents]


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


def imported(tree: ast.AST) -> set[str]:
    """The top-level names of the modules that are imported at run time (what only types need does not count)."""
    names: set[str] = set()
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "random" and {alias.name for alias in node.names} == {"Random"}:
                continue  # The type of the generator that is handed in.
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_keeps_the_rules_of_its_room(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    room = room_of(path)
    assert (path.name == "__init__.py" and not text.strip()) or ast.get_docstring(tree), "a module says what it owns"
    if room not in ASYNC_ROOMS:
        assert not any(
            isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith) for node in ast.walk(tree)
        ), f"async has no place in {room}"
    if room in PURE_ROOMS:
        assert not imported(tree) & MACHINE_MODULES, f"{room} is pure"
    if room not in ("runtime", "cli", "testing", "sim", "console"):
        assert not imported(tree) & {"socket", "select", "threading", "subprocess"}, "only runtime touches the machine"
    if room in ("broker", "client"):
        assert "time" not in imported(tree), "only runtime has clocks"
    if room in NODE_ROOMS:
        assert not imported(tree) & {"os", "pathlib", "shutil", "tempfile"}, "only runtime touches files"
        assert not any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
            for node in ast.walk(tree)
        ), "only runtime touches files"
    for package in imported(tree) & OF_ROOMS.keys():
        assert room in OF_ROOMS[package], f"{package} has no place in {room}"
    assert not imported(tree) & {"pickle", "shelve", "marshal"}, "bytes that name code to run are not read"
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", text)


def test_the_repository_speaks_of_the_product_alone() -> None:
    hosts = re.compile("|".join(("pypi" + r"\.org", "pythonhosted" + r"\.org", "maven" + r"\.org", "npmjs" + r"\.org")))
    for path in ROOT.rglob("*"):
        relative = path.relative_to(ROOT)
        if path.suffix not in (".py", ".md", ".toml", ".txt", ".c", ".xml", "") or not path.is_file():
            continue
        if any((part.startswith(".") and part != ".ci") or part in ("build", "dist") for part in relative.parts):
            continue
        text = path.read_text(errors="replace")
        assert not hosts.search(text), f"{relative} names a registry's host"
        assert "/work" + "/main" not in text, f"{relative} has an absolute path"


def test_whoever_sends_keys_by_librdkafka_sends_them_where_java_does() -> None:
    """Its own choice would be another one: one key in two partitions, and joins that miss."""
    senders = []
    for path in [*modules(), *sorted((ROOT / "examples").glob("*.py"))]:
        text = path.read_text()
        if re.search(r"from confluent_kafka import .*\bProducer\b", text) and re.search(r"\bkey\b", text):
            senders.append(path.name)
            assert "murmur2_random" in text, f"{path}: set partitioner=murmur2_random"
    assert {"produce.py", "demo.py"} <= set(senders)
