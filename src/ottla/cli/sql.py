"""`ottla sql`: asks topics in Spark's SQL, and shows the answer as a table, a file, or rows as they come."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ottla.cli.pipeline import need_spark
from ottla.errors import StartupError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

SHOWN = 100
"""Rows on the screen, unless --limit says otherwise."""


def run_sql(
    query: str,
    *,
    properties: Mapping[str, str],
    registry: str | None,
    follow: bool,
    from_beginning: bool,
    output: Path | None,
    limit: int | None,
    as_json: bool = False,
) -> None:
    need_spark()
    from ottla.spark import SparkUnavailable, session
    from ottla.spark.failures import hush
    from ottla.spark.sql import FILES, SqlError, Topics, each_row, write_file

    if output is not None and output.suffix not in FILES:
        raise UsageError(f"--output {output} is of no kind that can be written: let it end in {', '.join(FILES)}.")
    if output is not None and not output.absolute().parent.is_dir():
        raise StartupError(f"--output {output} is in a directory that does not exist: create it first.")
    if output is not None and follow:
        raise UsageError("--follow shows rows and writes no file: leave it out, or use `ottla pipeline run`.")
    if from_beginning and not follow:
        raise UsageError("--from-beginning goes with --follow: without it all that is there is read anyway.")
    topics = Topics(
        bootstrap=properties["bootstrap.servers"],
        properties=properties,
        registry=registry or properties.get("schema.registry.url"),
        streaming=follow,
        from_beginning=from_beginning or not follow,
    )
    console, aside = Console(highlight=False), Console(stderr=True, highlight=False)
    try:
        names = topics.names()
        with _busy(aside, "starting Spark …"):
            spark = session("sql")
            hush(spark)
            frame = topics.answer(spark, query, names)
        if output is not None:
            with _busy(aside, "reading …"):
                count = write_file(frame if limit is None else frame.limit(limit), output)
            if as_json:
                print(json.dumps({"file": str(output), "rows": count}))
            else:
                console.print(f"{_rows(count)} in {output}.")
        elif follow:
            _follow(console, frame, limit, as_json=as_json)
        elif as_json:
            _print_json(frame.columns, each_row(frame if limit is None else frame.limit(limit)))
        else:
            _show(console, aside, frame, limit)
    except (SqlError, SparkUnavailable) as error:
        raise StartupError(str(error)) from error


def _busy(aside: Console, doing: str) -> AbstractContextManager[object]:
    """What takes a while, while it does: in place on a terminal, a line elsewhere."""
    if aside.is_terminal:
        return aside.status(doing)
    aside.print(doing)
    return nullcontext()


def _show(console: Console, aside: Console, frame: DataFrame, limit: int | None) -> None:
    from ottla.spark.sql import rows_of

    wanted = SHOWN if limit is None else limit
    with _busy(aside, "reading …"):
        found = rows_of(frame, wanted + 1 if limit is None else wanted)
    console.print(_table(frame.columns, found[:wanted]))
    if len(found) > wanted:
        console.print(f"{_rows(wanted)}, and there are more: raise --limit, or write them with --output.")
    else:
        console.print(f"{_rows(len(found))}.")


def _follow(console: Console, frame: DataFrame, limit: int | None, *, as_json: bool) -> None:
    from ottla.spark.pipelines.runner import asked_to_stop
    from ottla.spark.sql import follow

    headed = False

    def show(rows: list[Row]) -> None:
        nonlocal headed
        if as_json:
            _print_json(frame.columns, rows)
            return
        console.print(_table(frame.columns, rows, headed=not headed))
        headed = True

    with asked_to_stop() as asked:
        count = follow(frame, limit, show, lambda: asked.to_stop)
    if not as_json:
        console.print(f"{_rows(count)}.")


def _print_json(columns: list[str], rows: Iterable[Row]) -> None:
    for row in rows:
        print(json.dumps(dict(zip(columns, map(_plain, row), strict=True)), ensure_ascii=False), flush=True)


def _plain(value: Any) -> Any:
    """As JSON has it: times and decimals as text, bytes as the table shows them."""
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, bytes | bytearray):
        return f"0x{value.hex().upper()}"
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if hasattr(value, "asDict"):
        return {key: _plain(each) for key, each in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value)


def _table(columns: list[str], rows: list[Row], *, headed: bool = True) -> Table:
    table = Table(*columns, show_header=headed)
    for row in rows:
        table.add_row(*(Text("null", style="dim") if each is None else Text(str(each)) for each in row))
    return table


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
