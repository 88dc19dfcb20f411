"""The format "ottla" as a sink of PySpark, batch and stream.

PySpark makes a writer in a process that plans, pickles it for the tasks, and commits in yet another process: there the
writer of a batch query is the pickled one, that of a stream is made anew, and commit messages are all that it knows. So
a sink is opened (`driver.open_sink`) at the moment when its writer is pickled: that is before the first task
begins, and never when it only commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.spark.sink.checkpoints import query_id_of
from ottla.spark.sink.driver import commit, open_sink, undo
from ottla.spark.sink.handover import OpenSink, TaskResult
from ottla.spark.sink.options import DeliveryGuarantee, InvalidSinkOption, SinkOptions
from ottla.spark.sink.rows import check_schema
from ottla.spark.sink.staging import Task, send, stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_SPECULATION = "spark.speculation"


@dataclass
class SinkMessage(WriterCommitMessage):
    """None with at-least-once delivery, where nothing is left to commit."""

    result: TaskResult | None


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidSinkOption("A topic cannot be overwritten: use mode('append').")
        if options.guarantee is DeliveryGuarantee.AT_LEAST_ONCE and options.batch_id is not None:
            raise InvalidSinkOption("The option batchId needs exactly-once delivery: leave one of the two out.")
        _check(schema, options)
        self._options = options
        self._sink = options.sink_id or f"write-{uuid4().hex}"
        self._opened: OpenSink | None = None

    def __getstate__(self) -> dict[str, object]:
        if self._opened is None and self._options.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            self._opened = open_sink(self._options, self._sink, forsaken=self._options.sink_id is None)
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        task = Task(context.partitionId(), batch_id=self._options.batch_id, repeated=_may_be_repeated(context))
        return SinkMessage(_write(self._options, self._opened, task, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(self._options, _results(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        undo(self._options, _results(messages), self._opened)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidSinkOption("A topic cannot be overwritten: use outputMode('append').")
        if options.batch_id is not None:
            raise InvalidSinkOption("The option batchId is for batch writes: Spark itself counts those of a stream.")
        _check(schema, options)
        self._options = options
        self._opened: OpenSink | None = None

    def __getstate__(self) -> dict[str, object]:
        if self._opened is None and self._options.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            self._opened = open_sink(self._options, self._options.sink_id or query_id_of(self._options.checkpoint))
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        batch_id = context.getLocalProperty(_BATCH_ID)
        assert batch_id is not None, "Spark says which batch of the stream it is"
        query_id = context.getLocalProperty(_QUERY_ID) or ""
        task = Task(context.partitionId(), query_id, int(batch_id), _may_be_repeated(context))
        return SinkMessage(_write(self._options, self._opened, task, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit(self._options, _results(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        undo(self._options, _results(messages))


def _write(
    options: SinkOptions, opened: OpenSink | None, task: Task, iterator: Iterator[pa.RecordBatch]
) -> TaskResult | None:
    if opened is None:
        send(options, task.partition, iterator)
        return None
    return stage(options, opened, task, iterator)


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    """Of the tasks that have something to tell: one that failed has no message."""
    return [each.result for each in messages if isinstance(each, SinkMessage) and each.result is not None]


def _check(schema: StructType, options: SinkOptions) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    check_schema(to_arrow_schema(schema, timezone="UTC"), options.topic)


def _may_be_repeated(context: TaskContext) -> bool:
    """Was it tried before, or may Spark run a copy of it, whose number would not show here?"""
    return context.attemptNumber() > 0 or (context.getLocalProperty(_SPECULATION) or "").lower() == "true"


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a writer writes within a task"
    return context
