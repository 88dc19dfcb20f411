"""The commands that run on Spark and their options: `ottla pipeline …` and `ottla sql`.

Which cluster they mean, and how they log in, is said as with the commands that need no Spark (`session`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.cluster_options import Bootstrap, CommandConfig, Json, Profile, Properties

pipeline = typer.Typer(no_args_is_help=True, help="Run pipelines on Spark, look at them, and stop them.")

Root = Annotated[Path, typer.Option("--home", help="Where pipelines keep their checkpoints and their status.")]
Once = Annotated[bool, typer.Option("--once", help="Stop when all that is there now has been read.")]
Interval = Annotated[float, typer.Option(help="The least time from batch to batch, in seconds.")]
Name = Annotated[str | None, typer.Option(help="What the pipeline is called; by this it is known again.")]

HOME = Path("ottla-pipelines")


def _client(
    bootstrap: str | None, profile: str | None, command_config: Path | None, properties: list[str] | None
) -> Mapping[str, str]:
    """Where the cluster is and how to log in, as with every other command."""
    from ottla.cli.session import open_session

    return open_session(
        bootstrap=bootstrap, profile=profile, command_config=command_config, properties=properties
    ).properties


@pipeline.command("run")
def pipeline_run(
    file: Annotated[Path, typer.Argument(help="A Python file with pipeline(spark) and a sink.")],
    home: Root = HOME,
    once: Once = False,
    interval: Interval = 0.0,
    as_json: Json = False,
) -> None:
    """Run the pipeline of a file, from where it stopped the last time."""
    from ottla.cli.pipeline import run_file

    run_file(file, root=home, once=once, interval_s=interval, as_json=as_json)


@pipeline.command("table")
def pipeline_table(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    location: Annotated[Path, typer.Argument(help="The directory of the table.")],
    format_: Annotated[str, typer.Option("--format", help="iceberg, delta or parquet.")] = "iceberg",
    by: Annotated[str, typer.Option(help="Partitions: hour, day, month or none.")] = "day",
    back: Annotated[bool, typer.Option("--back", help="The other way: the table's rows into the topic, once.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    command_config: CommandConfig = None,
    properties: Properties = None,
    name: Name = None,
    home: Root = HOME,
    once: Once = False,
    interval: Interval = 0.0,
    as_json: Json = False,
) -> None:
    """Keep a table of a topic's records: each exactly once, partitioned by time, small files made large."""
    from ottla.cli.pipeline import run_table

    run_table(
        topic=topic,
        location=location,
        format=format_,
        by=by,
        back=back,
        properties=_client(bootstrap, profile, command_config, properties),
        name=name,
        root=home,
        once=once,
        interval_s=interval,
        as_json=as_json,
    )


@pipeline.command("mirror")
def pipeline_mirror(
    source: Annotated[str, typer.Option("--from", metavar="HOST:PORT", help="A node of the cluster to mirror.")],
    target: Annotated[str, typer.Option("--to", metavar="HOST:PORT", help="A node of the cluster to fill.")],
    topics: Annotated[
        str, typer.Option(metavar="PATTERN", help="The topics, as a regular expression; those with _ must be named.")
    ] = "[^_].*",
    groups: Annotated[
        str, typer.Option(metavar="PATTERN", help="The consumer groups whose offsets are translated.")
    ] = ".*",
    from_config: Annotated[
        Path | None, typer.Option(help="A client's properties file: how to log in to the first cluster.")
    ] = None,
    to_config: Annotated[Path | None, typer.Option(help="The same for the second cluster.")] = None,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on where topics or records were deleted before they were mirrored.")
    ] = False,
    name: Name = None,
    home: Root = HOME,
    once: Once = False,
    interval: Interval = 0.0,
    as_json: Json = False,
) -> None:
    """Keep topics of one cluster in another, exactly once, and tell consumer groups where they stand there."""
    from ottla.cli.pipeline import run_mirror

    run_mirror(
        source=source,
        target=target,
        topics=topics,
        groups=groups,
        from_config=from_config,
        to_config=to_config,
        skip_lost=skip_lost,
        name=name,
        root=home,
        once=once,
        interval_s=interval,
        as_json=as_json,
    )


@pipeline.command("redrive")
def pipeline_redrive(
    topic: Annotated[str, typer.Argument(metavar="DEAD_LETTER_TOPIC", help="The topic with the dead letters.")],
    to: Annotated[str | None, typer.Option(metavar="TOPIC", help="Send all of them here.")] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Only those: SQL on topic, partition, offset, error, schema_id, key, value, headers.",
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    command_config: CommandConfig = None,
    properties: Properties = None,
    name: Name = None,
    home: Root = HOME,
    as_json: Json = False,
) -> None:
    """Send dead letters back to the topics that they came from: each once, also if it is run again."""
    from ottla.cli.pipeline import run_redrive

    run_redrive(
        topic=topic,
        to=to,
        where=where,
        properties=_client(bootstrap, profile, command_config, properties),
        name=name,
        root=home,
        as_json=as_json,
    )


@pipeline.command("status")
def pipeline_status(
    name: Annotated[str | None, typer.Argument(help="One pipeline; all, if not given.")] = None,
    home: Root = HOME,
    as_json: Json = False,
) -> None:
    """Show which pipelines run, how fast, and how far they are behind."""
    from ottla.cli.pipeline import show_status

    show_status(name, root=home, as_json=as_json)


@pipeline.command("stop")
def pipeline_stop(
    name: Annotated[str, typer.Argument(help="The pipeline.")], home: Root = HOME, as_json: Json = False
) -> None:
    """Stop a pipeline after the batch at hand; it goes on from there when it is run again."""
    from ottla.cli.pipeline import stop

    stop(name, root=home, as_json=as_json)


def sql(
    query: Annotated[str, typer.Argument(help="Spark's SQL, with topics as tables.")],
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    command_config: CommandConfig = None,
    properties: Properties = None,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A schema registry, if the profile's schema.registry.url does not say: Avro becomes columns.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Show rows as they come, until Ctrl-C.")] = False,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="With --follow: first those that are there already.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write .csv, .json (a row a line) or .parquet instead.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="So many rows at most; a table has 100 if this does not say.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask topics in SQL, with Spark: a table on the screen, a file, or rows as they come."""
    from ottla.cli.sql import run_sql

    run_sql(
        query,
        properties=_client(bootstrap, profile, command_config, properties),
        registry=registry,
        follow=follow,
        from_beginning=from_beginning,
        output=output,
        limit=limit,
        as_json=as_json,
    )
