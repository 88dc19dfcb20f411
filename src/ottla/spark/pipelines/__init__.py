"""Pipelines: a DataFrame and a sink with a name, run from a checkpoint, watched and stopped by a command.

A file defines both (`definition`), the pipelines that ship are made by a function each (`table_pipeline`, `mirror`,
`redrive`), and one runner serves all of them (`runner`). What a pipeline leaves behind lies in its home (`home`): the
checkpoint that it goes on from, and what `ottla pipeline status` shows.
"""

from __future__ import annotations

from ottla.spark.pipelines.definition import Pipeline, PipelineError
from ottla.spark.pipelines.sinks import Sink, each_batch, to_table, to_topic

__all__ = ["Pipeline", "PipelineError", "Sink", "each_batch", "to_table", "to_topic"]
