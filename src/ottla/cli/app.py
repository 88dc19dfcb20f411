"""The commands and their options; what they do is in a module each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ottla import __version__
from ottla.cli.commands import CommandsOnUse

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=CommandsOnUse,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Kafka's little sister: the partitioned, replicated log of Apache Kafka, in Python.",
)

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key of server.properties; may be given again and again."),
]
LogLevel = Annotated[str, typer.Option(help="What to log to standard error: debug, info, warning or error.")]


def _choose_log_format(name: str | None) -> None:
    if name is not None:
        from ottla.cli.settings import choose_log_format

        choose_log_format(name)


LogFormat = Annotated[
    str | None,
    typer.Option(
        callback=_choose_log_format,
        help="How to log: text, or json; text on a terminal and json elsewhere if not given.",
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ottla {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass


@app.command()
def up(
    nodes: Annotated[int, typer.Option(help="How many nodes, each in a process of its own.")] = 1,
    port: Annotated[int, typer.Option(help="The port for clients, of the first node; 0 picks free ones.")] = 9092,
    host: Annotated[str, typer.Option(help="The address to listen on, and to tell clients.")] = "127.0.0.1",
    data: Annotated[Path, typer.Option(help="Where records are kept.")] = Path("ottla-data"),
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep nothing: the data is gone when the node stops.")
    ] = False,
    registry: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where schemas are served, by the first node; `off` for nowhere."),
    ] = None,
    console: Annotated[bool, typer.Option("--console/--no-console", help="Serve a console for the browser.")] = True,
    console_port: Annotated[
        int | None, typer.Option(help="Where the console is served, on this machine alone; 8080 if not given.")
    ] = None,
    settings: Settings = None,
    log_level: LogLevel = "warning",
    log_format: LogFormat = None,
) -> None:
    """Serve Kafka here and now: one node, or a cluster of several, ready for any Kafka client."""
    from ottla.cli.up import run_up

    run_up(
        nodes=nodes,
        port=port,
        host=host,
        data=str(data),
        ephemeral=ephemeral,
        registry=registry,
        console=console,
        console_port=console_port,
        settings=settings or [],
        log_level=log_level,
    )


@app.command()
def node(
    properties: Annotated[Path, typer.Argument(help="A server.properties with Kafka's keys.")],
    registry: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to serve schemas too.")] = "off",
    settings: Settings = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = None,
) -> None:
    """Run one node of a cluster on a machine of its own, with Kafka's keys and defaults."""
    from ottla.cli.node import run_node

    run_node(properties, settings or [], log_level, registry)


@app.command()
def registry(
    bootstrap: Annotated[str, typer.Option(help="The cluster that keeps the schemas: any Kafka's, as host:port,…")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to serve HTTP.")] = "127.0.0.1:8081",
    config: Annotated[
        Path | None, typer.Option(help="Properties for the connection to the cluster, with Kafka's client keys.")
    ] = None,
    users: Annotated[Path | None, typer.Option(help="A file with a name:password a line, of who may come in.")] = None,
    log_level: LogLevel = "warning",
    log_format: LogFormat = None,
) -> None:
    """Serve a schema registry, with Confluent's API, beside any Kafka cluster."""
    from ottla.cli.registry import run_registry

    run_registry(bootstrap=bootstrap, listen=listen, config=config, users=users, log_level=log_level)


@app.command()
def console(
    bootstrap: Annotated[str, typer.Option("--bootstrap", "-b", help="Any Kafka's cluster, as host:port,…")],
    port: Annotated[int, typer.Option(help="Where to serve the console; 0 picks a free port.")] = 8080,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    properties: Annotated[
        list[str] | None,
        typer.Option("-X", metavar="KEY=VALUE", help="A property of Kafka's clients, as security.protocol=SSL."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A file with properties of Kafka's clients.")] = None,
    registry: Annotated[str | None, typer.Option(metavar="URL", help="The schema registry, to decode records.")] = None,
    users: Annotated[Path | None, typer.Option(help="A file with a name:password a line, of who may come in.")] = None,
    log_level: LogLevel = "warning",
) -> None:
    """Look at any Kafka cluster in the browser."""
    from ottla.cli.console import run_console

    run_console(
        bootstrap=bootstrap,
        host=host,
        port=port,
        properties=properties or [],
        config=config,
        registry=registry,
        users=users,
        log_level=log_level,
    )


@app.command("format")
def format_(
    properties: Annotated[Path, typer.Argument(help="The server.properties of the node.")],
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", "-t", help="The same for every node; a new one if not given.")
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", "-s", help="This controller begins as the only voter of its quorum.")
    ] = False,
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", "-N", help="This controller joins a quorum that exists.")
    ] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option("--initial-controllers", "-I", help="The first voters: id@host:port:directory-id, with commas."),
    ] = None,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="Pass over directories that are formatted already.")
    ] = False,
    release_version: Annotated[
        str | None, typer.Option("--release-version", "-r", help="The feature levels of this release of Kafka.")
    ] = None,
    feature: Annotated[
        list[str] | None, typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="The level of one feature.")
    ] = None,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            "-S",
            metavar="SCRAM-SHA-256=[name=USER,password=PASSWORD]",
            help="A user that the cluster knows from the beginning.",
        ),
    ] = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON, one object a line.")] = False,
) -> None:
    """Prepare a node's directories, as kafka-storage does: cluster id, directory ids, bootstrap metadata."""
    from ottla.cli.format import run_format

    run_format(
        properties,
        cluster_id=cluster_id,
        standalone=standalone,
        no_initial_controllers=no_initial_controllers,
        initial_controllers=initial_controllers,
        ignore_formatted=ignore_formatted,
        release_version=release_version,
        features=feature or [],
        add_scram=add_scram or [],
        settings=settings or [],
        as_json=as_json,
    )


@app.command()
def sim(
    seed: Annotated[int | None, typer.Option(help="Run this one seed.")] = None,
    seeds: Annotated[str, typer.Option(help="Run these, as in 0-999.")] = "0-9",
    mode: Annotated[str, typer.Option(help="safety or liveness.")] = "safety",
    story: Annotated[bool, typer.Option("--story", help="Tell what happened, moment by moment.")] = False,
    jobs: Annotated[int, typer.Option(help="So many processes at once.")] = 1,
    nodes: Annotated[int | None, typer.Option(help="So many nodes, where the seed would choose.")] = None,
    seconds: Annotated[float, typer.Option(help="How long the trouble lasts, in simulated seconds.")] = 60.0,
    mutation: Annotated[str | None, typer.Option(help="Put this historic bug into the nodes.")] = None,
    mutations: Annotated[bool, typer.Option("--mutations", help="List the bugs that can be put in.")] = False,
    resume: Annotated[Path | None, typer.Option(help="Keep the seeds that passed here, and leave them out.")] = None,
) -> None:
    """Run clusters of real nodes on virtual time under seeds, with everything failing, and check what must hold."""
    from ottla.cli.sim import list_mutations, parse_seeds, run_sim

    if mutations:
        list_mutations()
        return
    run_sim(
        seeds=[seed] if seed is not None else parse_seeds(seeds),
        mode=mode,
        nodes=nodes,
        seconds=seconds,
        jobs=jobs,
        story=story,
        mutation=mutation,
        resume=resume,
    )


pipeline = typer.Typer(no_args_is_help=True, help="Run pipelines on Spark, look at them, and stop them.")
app.add_typer(pipeline, name="pipeline")

Root = Annotated[Path, typer.Option("--home", help="Where pipelines keep their checkpoints and their status.")]
Bootstrap = Annotated[str, typer.Option("--bootstrap", "-b", help="A node of the cluster, HOST:PORT.")]
Once = Annotated[bool, typer.Option("--once", help="Stop when all that is there now has been read.")]
Interval = Annotated[float, typer.Option(help="The least time from batch to batch, in seconds.")]
Name = Annotated[str | None, typer.Option(help="What the pipeline is called; by this it is known again.")]

HOME = Path("ottla-pipelines")
ADDRESS = "127.0.0.1:9092"


@pipeline.command("run")
def pipeline_run(
    file: Annotated[Path, typer.Argument(help="A Python file with pipeline(spark) and a sink.")],
    home: Root = HOME,
    once: Once = False,
    interval: Interval = 0.0,
) -> None:
    """Run the pipeline of a file, from where it stopped the last time."""
    from ottla.cli.pipeline import run_file

    run_file(file, root=home, once=once, interval_s=interval)


@pipeline.command("table")
def pipeline_table(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    location: Annotated[Path, typer.Argument(help="The directory of the table.")],
    format_: Annotated[str, typer.Option("--format", help="iceberg, delta or parquet.")] = "iceberg",
    by: Annotated[str, typer.Option(help="Partitions: hour, day, month or none.")] = "day",
    back: Annotated[bool, typer.Option("--back", help="The other way: the table's rows into the topic, once.")] = False,
    bootstrap: Bootstrap = ADDRESS,
    name: Name = None,
    home: Root = HOME,
    once: Once = False,
    interval: Interval = 0.0,
) -> None:
    """Keep a table of a topic's records: each exactly once, partitioned by time, small files made large."""
    from ottla.cli.pipeline import run_table

    run_table(
        topic=topic,
        location=location,
        format=format_,
        by=by,
        back=back,
        bootstrap=bootstrap,
        name=name,
        root=home,
        once=once,
        interval_s=interval,
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
    bootstrap: Bootstrap = ADDRESS,
    name: Name = None,
    home: Root = HOME,
) -> None:
    """Send dead letters back to the topics that they came from: each once, also if it is run again."""
    from ottla.cli.pipeline import run_redrive

    run_redrive(topic=topic, to=to, where=where, bootstrap=bootstrap, name=name, root=home)


@pipeline.command("status")
def pipeline_status(
    name: Annotated[str | None, typer.Argument(help="One pipeline; all, if not given.")] = None,
    home: Root = HOME,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON, one object a line.")] = False,
) -> None:
    """Show which pipelines run, how fast, and how far they are behind."""
    from ottla.cli.pipeline import show_status

    show_status(name, root=home, as_json=as_json)


@pipeline.command("stop")
def pipeline_stop(name: Annotated[str, typer.Argument(help="The pipeline.")], home: Root = HOME) -> None:
    """Stop a pipeline after the batch at hand; it goes on from there when it is run again."""
    from ottla.cli.pipeline import stop

    stop(name, root=home)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="Spark's SQL, with topics as tables.")],
    bootstrap: Bootstrap = ADDRESS,
    registry: Annotated[
        str | None, typer.Option(metavar="URL", help="A schema registry: Avro becomes columns.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Show rows as they come, until Ctrl-C.")] = False,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="With --follow: first those that are there already.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write .csv, .json (a row a line) or .parquet instead.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="So many rows at most; shown are 100 by default.")] = None,
) -> None:
    """Ask topics in SQL, with Spark: a table on the screen, a file, or rows as they come."""
    from ottla.cli.sql import run_sql

    run_sql(
        query,
        bootstrap=bootstrap,
        registry=registry,
        follow=follow,
        from_beginning=from_beginning,
        output=output,
        limit=limit,
    )
