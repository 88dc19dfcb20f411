"""kio, another implementation of the protocol, reads what we write and writes the same bytes back."""

from __future__ import annotations

import io
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from kio.serial import entity_reader, entity_writer

from ottla.wire.message import Message
from ottla.wire.messages import message_class

from .strategies import ALL, messages

QUICK = settings(
    max_examples=3, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def kio_module(name: str, version: int) -> str | None:
    """Where kio keeps one version of a message, if it has it."""
    module = message_class(name).__module__.rpartition(".")[2].replace("kraft", "k_raft")
    for kind in ("request", "response", "header", "data"):
        stem = module.removesuffix(f"_{kind}") if kind in ("request", "response") else module
        path = f"kio.schema.{stem}.v{version}.{kind}"
        try:
            found = find_spec(path)
        except ModuleNotFoundError:
            continue
        if found is not None and (kind in ("header", "data") or module.endswith(f"_{kind}")):
            return path
    return None


KNOWN = {(name, version): path for name, version in ALL if (path := kio_module(name, version)) is not None}


def is_telling(name: str, version: int) -> bool:
    """The first, the first flexible and the last version of a message are checked in the quick run."""
    owner = message_class(name)
    return version in (owner.VERSIONS[0], owner.FLEXIBLE_FROM, owner.VERSIONS[-1])


CASES = [pytest.param(*case, marks=() if is_telling(*case) else pytest.mark.long) for case in KNOWN]


def test_kio_knows_nearly_all_requests_and_responses() -> None:
    assert len(KNOWN) > 600


@pytest.mark.parametrize(("name", "version"), CASES)
def test_kio_agrees(name: str, version: int) -> None:
    owner = message_class(name)
    theirs: Any = getattr(import_module(KNOWN[name, version]), name)
    read, write = entity_reader(theirs), entity_writer(theirs)

    @QUICK
    @given(messages(owner, version, tame=True))
    def check(message: Message) -> None:
        data = message.encode(version)
        entity, size = read(data, 0)
        assert size == len(data)
        buffer = io.BytesIO()
        write(buffer, entity)
        assert buffer.getvalue() == data
        assert owner.decode(buffer.getvalue(), version) == message

    check()
