"""A result that comes later, without a task of its own.

Who makes it `resolve`s or `fail`s it once; who wants it says what to do then, or awaits it. A handler may return one of
its response: the dispatcher sends it when it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Generic, TypeVar, cast

from ottla.errors import ErrorCode, KafkaError

R = TypeVar("R")
T = TypeVar("T")


class Promise(Generic[R]):
    """States: open → kept (`resolve`) or broken (`fail`). One listener at most."""

    __slots__ = ("_call", "_error", "_refuse", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: R | None = None
        self._error: KafkaError | None = None
        self._call: Callable[[Promise[R]], None] | None = None
        self._refuse: Callable[[KafkaError], R] | None = None

    @property
    def error(self) -> KafkaError | None:
        """What it was broken with."""
        return self._error

    def result(self) -> R:
        """What came of it. Raises the `KafkaError` that it failed with."""
        assert self.done, "it is not known yet"
        if self._error is not None:
            raise self._error
        return cast("R", self._value)

    def prepare(self, value: R) -> None:
        """`keep` will resolve it with that."""
        self._value = value

    def keep(self) -> None:
        assert not self.done, "a promise is kept once"
        self.done = True
        if self._call is not None:
            self._call(self)

    def resolve(self, value: R) -> None:
        self._value = value
        self.keep()

    def fail(self, error: KafkaError) -> None:
        assert not self.done, "a promise is broken once"
        if self._refuse is not None:
            self._value = self._refuse(error)
        else:
            self._error = error
        self.keep()

    def when_done(self, call: Callable[[Promise[R]], None]) -> None:
        """Call `call` with this promise as soon as it is kept or broken, which may be now."""
        assert self._call is None, "somebody listens already"
        if self.done:
            call(self)
        else:
            self._call = call

    def then(self, answer: Callable[[R], T], refuse: Callable[[KafkaError], T]) -> Promise[T]:
        """The promise of what one of the two makes of the result. It is broken if they fail."""
        made: Promise[T] = Promise()

        def settle(promise: Promise[R]) -> None:
            error = promise._error
            try:
                value = answer(cast("R", promise._value)) if error is None else refuse(error)
            except Exception:
                made.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
                raise
            made.resolve(value)

        self.when_done(settle)
        return made

    def otherwise(self, refuse: Callable[[KafkaError], R]) -> Promise[R]:
        """This promise: should it be broken, it is kept instead, with what `refuse` makes of the error."""
        if self._error is not None:
            self._value, self._error = refuse(self._error), None
        else:
            self._refuse = refuse
        return self

    def __await__(self) -> Generator[object, None, R]:
        if not self.done:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_: Promise[R]) -> None:
                if not waiting.done():
                    waiting.set_result(None)

            self.when_done(wake)
            yield from waiting
        return self.result()


def kept(value: R) -> Promise[R]:
    promise: Promise[R] = Promise()
    promise.resolve(value)
    return promise


def broken(error: KafkaError) -> Promise[R]:
    promise: Promise[R] = Promise()
    promise.fail(error)
    return promise
