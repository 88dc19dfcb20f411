"""Replies that come later."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from ottla.broker.reply import Deferred


class Waiting:
    """As a fetch that waits: it holds its reply, which holds it."""

    def __init__(self) -> None:
        self.reply = Deferred()
        self.reply.when_abandoned(self.cancel)
        self.cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("end", [lambda reply: reply.resolve(b"done"), Deferred.abandon], ids=["resolved", "abandoned"])
def test_a_request_that_has_waited_needs_no_collector(no_collector: None, end: object) -> None:
    """There are thousands a second, and each look of the collector stalls all others."""
    assert callable(end)
    waiting = Waiting()
    gone = weakref.ref(waiting)
    waiting.reply.when_done(lambda: None)
    end(waiting.reply)
    del waiting
    assert gone() is None


def test_only_what_is_still_wanted_is_abandoned_and_once() -> None:
    waiting = Waiting()
    waiting.reply.resolve(b"done")
    waiting.reply.abandon()
    assert waiting.cancelled == 0
    waiting = Waiting()
    waiting.reply.abandon()
    waiting.reply.abandon()
    assert waiting.cancelled == 1
