"""Apache Kafka's own classes read and write every message and version as ours do, stored records included."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.message import Message
from ottla.wire.messages import message_class
from ottla.wire.schema import Field, fields_of, is_flexible
from tests.oracle.apache_kafka import classpath, compiled, run_java
from tools.codegen.__main__ import main as generate

from .strategies import ALL

EXAMPLES = 8
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def _scalar(kind: str, chance: random.Random) -> Any:
    if kind in _BITS:
        edge = 1 << _BITS[kind] - 1
        return chance.choice([0, 1, -1, -edge, edge - 1, chance.randrange(-edge, edge)])
    choices: dict[str, list[Any]] = {
        "uint16": [0, 1, (1 << 16) - 1],
        "uint32": [0, 1, (1 << 32) - 1],
        "bool": [False, True],
        "float64": [0.0, 1.5, -2.25e10],
        "uuid": [bytes(16), chance.randbytes(16)],
        "string": ["", "a", "kůň", "x" * 126, "x" * 127, "x" * 300],
        "bytes": [b"", b"\x00", bytes(126), bytes(127), chance.randbytes(200)],
    }
    return chance.choice(choices[kind if kind in choices else "bytes"])


def _value(field: Field, version: int, chance: random.Random, depth: int) -> Any:
    if version in field.nullable and chance.random() < 0.25:
        return None

    def element() -> Any:
        return _message(field.struct, version, chance, depth + 1) if field.struct else _scalar(field.kind, chance)

    if field.is_array:
        return [element() for _ in range(chance.choice([0, 1, 2, 3] if depth < 3 else [0, 1]))]
    return element()


def _message(owner: type[Message], version: int, chance: random.Random, depth: int = 0) -> Message:
    made = owner()
    for field in fields_of(owner):
        if version in field.versions and not (version in field.tagged and chance.random() < 0.4):
            setattr(made, field.name, _value(field, version, chance, depth))
    if is_flexible(owner, version) and chance.random() < 0.15:
        made.unknown_tagged_fields = tuple((tag, chance.randbytes(3)) for tag in (90, 200, 100000))
    return made


@pytest.mark.oracle
def test_kafka_reads_and_writes_the_same_bytes(tmp_path: Path) -> None:
    chance = random.Random(20_431)
    asked: list[tuple[str, int, bytes, str]] = []
    for name, version in ALL:
        owner = message_class(name)
        asked.append((name, version, owner().encode(version), "default"))
        for _ in range(EXAMPLES):
            message = _message(owner, version, chance)
            data = message.encode(version)
            assert owner.decode(data, version) == message
            asked.append((name, version, data, data.hex()))
    lines = tmp_path / "messages"
    lines.write_text("".join(f"{name} {version} {text}\n" for name, version, _, text in asked))
    source = Path(__file__).with_name("Reencode.java")
    answers = run_java("Reencode", str(lines), cp=compiled(source), timeout=120).check().out.splitlines()
    assert len(answers) == len(asked)
    wrong = [
        (name, version, data.hex(), answer)
        for (name, version, data, _), answer in zip(asked, answers, strict=True)
        if answer != data.hex()
    ]
    assert wrong == []


@pytest.mark.oracle
def test_the_committed_messages_are_what_the_generator_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for entry in classpath().split(":"):
        for jar in Path(entry).parent.glob(Path(entry).name if entry.endswith(".jar") else "*.jar"):
            link = tmp_path / jar.name
            if not link.exists():
                link.symlink_to(jar)
    monkeypatch.setattr(sys, "argv", ["codegen", str(tmp_path), "--check"])
    assert generate() == 0
