"""Where PySpark finds the format "ottla": it imports every package named `pyspark_*` and takes its `DefaultSource`."""

from ottla.spark.format import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
