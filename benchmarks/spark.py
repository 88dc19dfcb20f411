"""`python -m benchmarks.spark`: topics as DataFrames, by Ottla's format and by Spark's own connector, in one PySpark.

Spark's connector is tuned, and its sink delivers at least once, while Ottla's delivers exactly once.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.oracle.apache_kafka import KafkaTools, OracleTimeout, OracleUnavailable
from tests.oracle.ottla_node import OttlaFailed, ottla_command

from . import load, report, series, servers
from .load import LoadFailed
from .runner import Result
from .servers import KafkaSide, OttlaSide
from .spark_cases import MASTERS, PARTITIONS, TUNED_READING, TUNED_WRITING, Bench, FormatSide, Sizes, World

STEM = "spark-results"
NAMES = ("Ottla's format", "Spark's connector")


def facts(bench: Bench, options: argparse.Namespace) -> list[str]:
    from pyspark import __version__ as spark

    tuned = ", ".join(f"`{key}={value}`" for key, value in {**TUNED_READING, **TUNED_WRITING}.items())
    rate = f"{statistics.median(bench.rate_ms):.0f} ms" if bench.rate_ms else "not measured"
    return [
        f"PySpark {spark}, {servers.java_version()}, one session of {MASTERS[-1]} for both formats unless a line says "
        f"otherwise, `spark.driver.memory=2g`. Spark's connector is that of {spark}, with kafka-clients 3.9.1 and the "
        "token provider of 4.0.0 (there is none of its own).",
        f"The broker is one Ottla node on the same machine (or Apache Kafka, where the line says so), {PARTITIONS} "
        "partitions. Values are text that packs to about half, without keys, in batches of 64 KB before compression.",
        f"Spark's connector is tuned: {tuned}. Ottla's format has its defaults. Both check the CRC of every batch.",
        "Reading counts the rows, sums the lengths of the values, and takes the greatest offset and timestamp, so that "
        "every row reaches Spark's own operators.",
        "Writing makes its rows as it goes, keys of 8 bytes included in the size; both with acks=all. Ottla's sink is "
        "exactly once, with everything that belongs to it; Spark's delivers at least once.",
        "The duration of micro-batches is Spark's own (`triggerExecution`), with its checkpoint on the disk and, for "
        f"Ottla's format, progress committed to a group. Spark's rate source, into nothing: {rate}.",
        *(split for what in ("read", "write") if (split := _split(bench, what)) is not None),
        f"Medians of {options.repetitions}, the two taking turns after a warm-up; `of pairs` is the range of the "
        "ratios of neighbouring runs. CPU-seconds are of Spark, its Python workers and the broker together, for a GB "
        "of values.",
    ]


def _split(bench: Bench, what: str) -> str | None:
    """A query's own cost and a record's, of both formats."""
    found = [(name, bench.split(what, format)) for name, format in zip(NAMES, ("ottla", "kafka"), strict=True)]
    told = [f"{name} {split[0]:.2f} s and {split[1]:.2f} µs" for name, split in found if split is not None]
    if len(told) < len(NAMES):
        return None
    verb = {"read": "reads", "write": "writes"}[what]
    return (
        f"By the times for N records and for a quarter of them, a query that {verb} 100 B costs so much whatever its "
        f"size, and so much for each record: {', '.join(told)}."
    )


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=__doc__)
    add = parser.add_argument
    add("--only", metavar="PATTERN", help="only cases whose title holds PATTERN (a glob, or plain text)")
    add("--repetitions", type=int, default=3, metavar="N", help="runs of a line on each side")
    add("--records", type=int, default=4_000_000, metavar="N", help="of 100 B, to read")
    add("--large-records", type=int, default=400_000, metavar="N", help="of 1 KB, to read")
    add("--sink-records", type=int, default=4_000_000, metavar="N", help="of 100 B, to write")
    add("--large-sink-records", type=int, default=400_000, metavar="N", help="of 1 KB, to write")
    add("--output", type=Path, metavar="DIR", help=f"where {STEM}.md and its plot go")
    add("--check", action="store_true", help="end with status 1 when a bar was missed or a case failed")
    return parser.parse_args(given)


def run(options: argparse.Namespace, console: Console, scratch: Path) -> tuple[list[Result], Bench]:
    sizes = Sizes(
        small=options.records,
        large=options.large_records,
        sink_small=options.sink_records,
        sink_large=options.large_sink_records,
    )
    with contextlib.ExitStack() as stack:
        broker = OttlaSide(scratch / "ottla", ottla_command(), series.COMPILED)
        kafka = KafkaSide(scratch / "kafka", stack.enter_context(KafkaTools()))
        world = World(broker, kafka, scratch)
        for end in (kafka.end, broker.end, world.end_sessions):
            stack.callback(end)
        bench = Bench(world, sizes)
        cases = series.chosen(bench.cases(), options.only)
        sides = (
            FormatSide(NAMES[0], world, "ottla", {}, {}),
            FormatSide(NAMES[1], world, "kafka", TUNED_READING, TUNED_WRITING),
        )
        return series.run_series(cases, sides, options.repetitions, console), bench


def main(given: Sequence[str]) -> int:
    options = arguments(given)
    console = Console() if sys.stdout.isatty() else Console(width=180)
    output: Path = options.output or (load.CACHE if options.only else Path(__file__).parent)
    output.mkdir(parents=True, exist_ok=True)
    load.CACHE.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="spark-", dir=load.CACHE))
    started = time.monotonic()
    try:
        results, bench = run(options, console, scratch)
    except (LoadFailed, OracleUnavailable, OracleTimeout, OttlaFailed) as failure:
        console.print(f"the benchmarks could not run: {failure}", style="red", highlight=False)
        return 2
    finally:
        servers.remove(scratch)
    rows = report.all_rows(results)
    setting = report.Setting(names=NAMES, repetitions=options.repetitions, data=load.CACHE, pure=False, ceiling={})
    report.plot(rows, setting, output / f"{STEM}.svg")
    page = report.markdown(
        rows,
        setting,
        f"{STEM}.svg",
        where=report.surroundings(setting)[:2],  # No broker of Apache Kafka is a side here.
        told=facts(bench, options),
        made_by="make bench-spark",
    )
    (output / f"{STEM}.md").write_text(page)
    console.print(report.table(rows, NAMES))
    console.print(f"{time.monotonic() - started:.0f} s; written to {output / f'{STEM}.md'}", highlight=False)
    return 1 if options.check and {"missed", "failed"} & {row.verdict for row in rows} else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
