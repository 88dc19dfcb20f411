"""The name that a streaming query has in its checkpoint, by which its sink is known from run to run.

Spark writes it before the first batch, into the file `metadata`. It moves with the checkpoint, and a checkpoint that is
deleted and made anew has another: which is as it should be, since that query counts its batches from 0 again.
"""

from __future__ import annotations

import json
from pathlib import Path

from ottla.spark.sink.options import InvalidSinkOption

_FILE = "file:"


def query_id_of(checkpoint: str | None) -> str:
    """Raises `InvalidSinkOption` where it cannot be had."""
    if checkpoint is None:
        raise InvalidSinkOption(
            "Exactly-once delivery needs to know the query again: set the option checkpointLocation, or sinkId."
        )
    try:
        query_id = json.loads(_read(f"{checkpoint.rstrip('/')}/metadata"))["id"]
    except (OSError, ValueError, KeyError) as error:
        raise InvalidSinkOption(
            f"The id of the query cannot be read from its checkpoint {checkpoint} ({error}): set the option sinkId to "
            f"a name that this query keeps and no other has."
        ) from error
    assert isinstance(query_id, str)
    return query_id


def _read(location: str) -> bytes:
    if location.startswith(_FILE):
        location = "/" + location[len(_FILE) :].lstrip("/")
    if "://" not in location:
        return Path(location).read_bytes()
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(location)
    with system.open_input_stream(path) as stream:
        data: bytes = stream.read()
        return data
