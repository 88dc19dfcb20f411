"""Every decoder keeps its word for the whole corpus, and for some thousands of spoilt inputs, always the same ones.

`make fuzz` looks for new ones, by coverage, for as long as one likes; what it finds is mended and goes into the corpus.
"""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import pytest

from ottla.broker.api import api_versions
from ottla.wire.frames import request_frame
from tools.fuzz.engine import Found, explore, replay, spoil
from tools.fuzz.live_node import Complained, LiveNode
from tools.fuzz.seeds import CORPUS, seeds
from tools.fuzz.targets import TARGETS, Target

CORPUS_BYTES_MAX = 200 * 1024


def must_not_be(found: Found | None) -> None:
    if found is not None:
        raise AssertionError(f"{found.target} broke its word for {found.data.hex()}") from found.error


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_and_a_thousand_spoilt_inputs(name: str) -> None:
    must_not_be(replay(name, seeds(name)))
    must_not_be(spoil(name, seed=1, count=1_000))


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_many_more_inputs(name: str) -> None:
    must_not_be(spoil(name, seed=2, count=200_000))


def test_the_corpus_is_small_and_of_targets_that_exist() -> None:
    files = list(CORPUS.iterdir())
    assert {path.name for path in files} <= {f"{name}.hex" for name in TARGETS}
    assert sum(path.stat().st_size for path in files) <= CORPUS_BYTES_MAX


def _gullible(data: bytes) -> None:
    """Only four bytes together do harm, so nobody finds them who does not see that he comes nearer."""
    if data[:1] == b"\x01":
        if data[1:2] == b"\xff":
            if data[2:3] == b"\x80":
                if data[3:4] == b"\x7f":
                    raise ZeroDivisionError
                raise ValueError
            raise ValueError
        raise ValueError


def test_a_decoder_that_breaks_its_word_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(TARGETS, "gullible", Target(_gullible, (ValueError,)))
    deadline = time.monotonic() + 60
    for seed in count():
        _, _, found = explore("gullible", seed=seed, seconds=2, into=tmp_path)
        if found:
            assert isinstance(found[0].error, ZeroDivisionError)
            return
        assert time.monotonic() < deadline, "nothing was found"


def test_a_node_that_complains_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a handler raises closes a connection and is logged; to whoever looks for bugs it is one."""
    hello = request_frame(18, 0, 7, "fuzz", b"")[4:]
    node = LiveNode()
    node.hear(hello)
    node.close()

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(api_versions, "handle", fail)
    try:
        with pytest.raises(Complained) as heard:
            node.hear(hello)
        assert isinstance(heard.value.__cause__, ZeroDivisionError)
    finally:
        node.close()
