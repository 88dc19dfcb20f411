"""What a handler gives back to the connection that the request came by."""

from __future__ import annotations

from collections.abc import Callable

from ottla.runtime import FileSpan

Chunks = list[bytes | FileSpan]
"""A response in pieces, in order, the length prefix included."""

Ready = bytes | Chunks | None
"""A whole frame, a frame in pieces, or nothing: `acks=0` is never answered."""


class Deferred:
    """A response that comes later; the connection keeps its place in the order of requests."""

    __slots__ = ("_done", "_on_abandoned", "_on_done", "reply")

    def __init__(self) -> None:
        self.reply: Ready = None
        self._done = False
        self._on_done: Callable[[], None] | None = None
        self._on_abandoned: Callable[[], None] | None = None

    @property
    def done(self) -> bool:
        return self._done

    def resolve(self, reply: Ready) -> None:
        assert not self._done
        self.reply = reply
        self._done = True
        # Let go of both: they hold the request, which holds this, and only the garbage collector would part them.
        on_done, self._on_done, self._on_abandoned = self._on_done, None, None
        if on_done is not None:
            on_done()

    def when_done(self, call: Callable[[], None]) -> None:
        self._on_done = call

    def when_abandoned(self, call: Callable[[], None]) -> None:
        """Call `call` if nobody wants the reply any more, so that it need not be waited for."""
        self._on_abandoned = call

    def abandon(self) -> None:
        on_abandoned, self._on_abandoned = self._on_abandoned, None
        if on_abandoned is not None:
            on_abandoned()


Reply = Ready | Deferred


class CloseConnection(Exception):
    """The peer is to be cut off; the reason is for the log. It has been told nothing, or all that it will be told."""
