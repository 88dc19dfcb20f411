"""The commands and their options; what they do is in a module each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ottla import __version__
from ottla.cli.cluster_options import Bootstrap, Profile, Properties
from ottla.cli.commands import CommandsOnUse
from ottla.cli.spark_commands import pipeline, sql

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
        typer.Option(
            metavar="HOST:PORT",
            help="Where schemas are served, each further node a port above; `off` for nowhere.",
        ),
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
    bootstrap: Bootstrap = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to serve HTTP.")] = "127.0.0.1:8081",
    profile: Profile = None,
    properties: Properties = None,
    config: Annotated[Path | None, typer.Option(help="A file with properties of Kafka's clients.")] = None,
    users: Annotated[Path | None, typer.Option(help="A file with a name:password a line, of who may come in.")] = None,
    log_level: LogLevel = "warning",
    log_format: LogFormat = None,
) -> None:
    """Serve a schema registry, with Confluent's API, beside any Kafka cluster, which keeps the schemas."""
    from ottla.cli.registry import run_registry
    from ottla.cli.session import open_session

    run_registry(
        cluster=open_session(bootstrap=bootstrap, profile=profile, command_config=config, properties=properties),
        listen=listen,
        users=users,
        log_level=log_level,
    )


@app.command()
def console(
    bootstrap: Bootstrap = None,
    port: Annotated[int, typer.Option(help="Where to serve the console; 0 picks a free port.")] = 8080,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    profile: Profile = None,
    properties: Properties = None,
    config: Annotated[Path | None, typer.Option(help="A file with properties of Kafka's clients.")] = None,
    registry: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The schema registry, if the profile's schema.registry.url does not say."),
    ] = None,
    users: Annotated[Path | None, typer.Option(help="A file with a name:password a line, of who may come in.")] = None,
    log_level: LogLevel = "warning",
) -> None:
    """Look at any Kafka cluster in the browser."""
    from ottla.cli.console import run_console
    from ottla.cli.session import open_session

    run_console(
        cluster=open_session(bootstrap=bootstrap, profile=profile, command_config=config, properties=properties),
        host=host,
        port=port,
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
    seed: Annotated[int | None, typer.Option(min=0, help="Run this one seed.")] = None,
    seeds: Annotated[str, typer.Option(help="Run these, as in 0-999.")] = "0-9",
    mode: Annotated[str, typer.Option(help="safety or liveness.")] = "safety",
    story: Annotated[bool, typer.Option("--story", help="Tell what happened, moment by moment.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="So many processes at once.")] = 1,
    nodes: Annotated[int | None, typer.Option(min=1, help="So many nodes, where the seed would choose.")] = None,
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


app.command()(sql)
app.add_typer(pipeline, name="pipeline")
