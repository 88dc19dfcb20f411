"""Runs a pipeline from its checkpoint, tells its progress, and stops it between two batches when asked."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from traceback import format_exception
from types import FrameType
from typing import TYPE_CHECKING

from ottla.spark.failures import first_cause, hush
from ottla.spark.pipelines.definition import Pipeline, PipelineError
from ottla.spark.pipelines.home import Home, State, Status
from ottla.spark.pipelines.sinks import Run
from ottla.spark.session import session
from ottla.spark.source.offsets import StreamOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

Telling = Callable[[Status], None]

_LOOK_S = 0.2
ERRAND_INTERVAL_S = 10.0


def run_pipeline(pipeline: Pipeline, home: Home, *, once: bool, interval_s: float, tell: Telling) -> Status:
    """Until it is stopped by SIGINT or SIGTERM, has read what was there (`once`, or no stream), or fails, which raises
    `PipelineError`. The status is written to the home and told, after every batch."""
    with home.held(), asked_to_stop() as asked:
        status = Status()

        def say(said: Status) -> None:
            nonlocal status
            status = said
            home.write_status(said)
            tell(said)

        say(status)
        run = Run(
            name=pipeline.name,
            checkpoint=home.checkpoint,
            number=home.runs(),
            identity=home.identity(),
            once=once,
            interval_s=interval_s,
        )
        try:
            frame = pipeline.build(_quiet_session(pipeline.name))
            say(replace(status, state=State.RUNNING))
            if frame.isStreaming:
                _follow(pipeline.sink.start(frame, run), asked, pipeline.errand, lambda: status, say)
            else:
                pipeline.sink.write(frame, run)
                home.count_run()
        except Exception as error:
            sentence = first_cause(error)
            more = ""
            with suppress(OSError):  # A full disk may be what has failed.
                more = f" All that is known of it is in {home.write_failure(''.join(format_exception(error)))}."
            with suppress(OSError):
                say(replace(status, state=State.FAILED, error=sentence))
            raise PipelineError(f"{pipeline.name} failed: {sentence.rstrip('.')}.{more}") from error
        say(replace(status, state=State.STOPPED if asked.to_stop else State.FINISHED))
        return status


def _quiet_session(name: str) -> SparkSession:
    """The running session as it is, or a new one that leaves it to us to say what has failed."""
    from pyspark.sql import SparkSession

    is_new = SparkSession.getActiveSession() is None
    spark = session(name)
    if is_new:
        hush(spark)
    return spark


def _follow(
    query: StreamingQuery,
    asked: Asked,
    errand: Callable[[], None] | None,
    status: Callable[[], Status],
    say: Telling,
) -> None:
    known = 0
    errand_due_s = time.monotonic() + ERRAND_INTERVAL_S
    try:
        while query.isActive and not asked.to_stop:
            time.sleep(_LOOK_S)
            known = _tell_new(query, known, status, say)
            if errand is not None and time.monotonic() >= errand_due_s:
                errand()
                errand_due_s = time.monotonic() + ERRAND_INTERVAL_S
        failure = query.exception()
        if failure is not None:
            raise failure
        _tell_new(query, known, status, say)
    finally:
        query.stop()
    if errand is not None:
        errand()


def _tell_new(query: StreamingQuery, known: int, status: Callable[[], Status], say: Telling) -> int:
    """Tell of the batches since `known` (Spark remembers the last hundred)."""
    progress = [each for each in query.recentProgress if each.batchId >= known]
    for each in progress:
        say(after(status(), each))
    return progress[-1].batchId + 1 if progress else known


def after(status: Status, progress: StreamingQueryProgress) -> Status:
    """The status when Spark has told of one more batch."""
    lag: dict[str, int] = {}
    for source in progress.sources:
        if not source.endOffset or not source.latestOffset:
            continue
        try:
            done = StreamOffset.from_json(json.loads(source.endOffset))
            latest = StreamOffset.from_json(json.loads(source.latestOffset))
        except (ValueError, TypeError, AttributeError):
            continue  # Not a topic: a source that has offsets of another kind.
        for each, end in latest.positions.items():
            lag[str(each)] = max(0, end - done.positions.get(each, 0))
    return replace(
        status,
        batch=progress.batchId,
        rows=status.rows + max(0, progress.numInputRows),
        rows_per_second=max(0.0, progress.processedRowsPerSecond or 0.0),
        lag=lag,
    )


@dataclass(slots=True)
class Asked:
    to_stop: bool = False


@contextmanager
def asked_to_stop() -> Iterator[Asked]:
    """While it lasts, SIGINT and SIGTERM are no end, but a wish."""
    asked = Asked()

    def stop(number: int, frame: FrameType | None) -> None:
        asked.to_stop = True

    try:
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # Signals come to the main thread, and this is another: whoever runs it stops the query.
        before = {}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
