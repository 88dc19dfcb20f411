"""What a pipeline is: a name, a function that makes a DataFrame, and a sink for its rows."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.pipelines.sinks import Sink


class PipelineError(Exception):
    """A pipeline cannot run, or cannot go on; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    build: Callable[[SparkSession], DataFrame]
    """Called once in each run. A streaming DataFrame runs until it is stopped, any other is written once."""
    sink: Sink
    errand: Callable[[], None] | None = None
    """Done every few seconds while a stream runs, and once more when it has ended well."""


def load(path: Path) -> Pipeline:
    """The pipeline that a Python file defines: `pipeline(spark) -> DataFrame`, and `sink`. It is named after the file,
    unless the file says `name`."""
    if not path.is_file():
        raise PipelineError(f"There is no pipeline file {path}: give the path of a Python file.")
    from pyspark import cloudpickle

    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{path} is not a Python file: its name should end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    # Tasks get the functions and classes of the file themselves: they cannot import it, wherever they run.
    send_by_value: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    send_by_value(module)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PipelineError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    build: Any = getattr(module, "pipeline", None)
    sink: Any = getattr(module, "sink", None)
    if not callable(build):
        raise PipelineError(f"{path} defines no function pipeline(spark): add one that returns a DataFrame.")
    if not hasattr(sink, "start") or not hasattr(sink, "write"):
        raise PipelineError(f"{path} defines no sink: add sink = to_topic(…) or sink = to_table(…).")
    return Pipeline(name=str(getattr(module, "name", path.stem)), build=build, sink=sink)
