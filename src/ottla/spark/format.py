"""The format "ottla": where PySpark asks for readers and writers.

PySpark makes an `OttlaDataSource` from the options of a query in a process that plans, and sends the reader or writer
that it gets to the tasks. What it needs is imported on use: a task that reads loads nothing that writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ottla.spark.versions import check_versions

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

SCHEMA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
SCHEMA_OF_HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


class OttlaDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        check_versions()
        headers = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return f"{SCHEMA}, {SCHEMA_OF_HEADERS}" if headers else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark.source.batch import batch_reader
        from ottla.spark.source.options import SourceOptions

        return batch_reader(SourceOptions.parse(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ottla.spark.source.options import SourceOptions
        from ottla.spark.source.stream import StreamReader

        return StreamReader(SourceOptions.parse(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark.sink.options import SinkOptions
        from ottla.spark.sink.writers import BatchWriter

        check_versions()
        return BatchWriter(SinkOptions.parse(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ottla.spark.sink.options import SinkOptions
        from ottla.spark.sink.writers import StreamWriter

        check_versions()
        return StreamWriter(SinkOptions.parse(self.options), schema, overwrite)
