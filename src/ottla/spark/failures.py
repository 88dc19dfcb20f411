"""What went wrong, in one sentence: Spark tells it in pages, in its exceptions and in its log.

For commands, which have a reader in front of them. Whoever wants it all finds it in the exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def hush(spark: SparkSession) -> None:
    """Nothing of Java's log from now on, nor of the queries that PySpark refuses: it is all in the exceptions too."""
    from pyspark.logger import PySparkLogger

    spark.sparkContext.setLogLevel("OFF")
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def first_cause(error: BaseException) -> str:
    """The last sentence of a Python traceback that Spark carries, or the error's own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if _is_exception(line)]
    return said[-1].split(": ", 1)[1] if said else one_line(error)


def one_line(error: BaseException) -> str:
    """Spark's message without the plan that follows it."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _is_exception(line: str) -> bool:
    """`ottla.spark.source.offsets.SourceError: …`: one of Python's, not one of Java's."""
    name, colon, _ = line.partition(": ")
    dotted = name.replace(".", "").replace("_", "")
    is_one = name.startswith("ottla.") or name.endswith(("Error", "Exception", "Option"))
    return bool(colon) and dotted.isalnum() and is_one and "java" not in name
