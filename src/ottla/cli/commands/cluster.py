"""`ottla cluster`: the brokers, the quorum, elections, and moving replicas."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from ottla.admin import cluster, log_dirs, reassignment, topics
from ottla.cli.output import plural, size
from ottla.cli.session import Session, command, confirm, group, parse_partitions
from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError, StartupError
from ottla.model import TopicPartition

app = group("The cluster: its brokers and quorum, elections of leaders, moves of replicas.")

_LOOK_AGAIN_S = 0.5
_UNKNOWN = -1
_CONTROLLER_MS = 5_000
"""Who wants to see the brokers does not wait longer for a quorum that has no leader."""


@command(app, "status", examples=["ottla cluster status", "ottla cluster status --json | jq .brokers"])
def status(session: Session) -> None:
    """Show the brokers, what they lead and hold, and how much room they have."""
    with session.client() as client:
        found = cluster.describe_cluster(client)
        all_topics = topics.list_topics(client)
        directories = log_dirs.describe_log_dirs(client)
        features = cluster.list_features(client)
        controller = _controller(client, found) if session.out.as_json else None
    partitions = [each for topic in all_topics for each in topic.partitions]
    rows: list[dict[str, Any]] = []
    for broker in found.brokers:
        own = [each for each in directories if each.node == broker.node]
        usable = [each.usable_bytes for each in own if each.usable_bytes >= 0]
        rows.append(
            {
                "node": broker.node,
                "host": broker.host,
                "port": broker.port,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "state": "fenced" if broker.is_fenced else "silent" if _is_silent(own) else "up",
                "leaders": sum(each.leader == broker.node for each in partitions),
                "replicas": sum(broker.node in each.replicas for each in partitions),
                "stored_bytes": None if not usable else sum(each.size_bytes for one in own for each in one.replicas),
                "usable_bytes": min(usable) if usable else None,
            }
        )
    summary = {
        "cluster_id": found.cluster_id,
        "controller": controller,
        "topics": len(all_topics),
        "partitions": len(partitions),
        "under_replicated": sum(each.is_under_replicated for each in partitions),
        "offline": sum(each.is_offline for each in partitions),
        "features": {each.name: each.level for each in features},
    }
    if session.out.as_json:
        session.out.item({**summary, "brokers": rows}, "")
        return
    session.out.item(
        {},
        f"cluster {found.cluster_id}: {plural(len(rows), 'broker')}, {plural(len(all_topics), 'topic')}, "
        f"{plural(len(partitions), 'partition')}, {summary['under_replicated']} under-replicated, "
        f"{summary['offline']} offline\n",
    )
    shown = [{**row, "stored": size(row["stored_bytes"]), "free": size(row["usable_bytes"])} for row in rows]
    columns = {"NODE": "node", "ADDRESS": "address", "RACK": "rack", "STATE": "state", "LEADS": "leaders"}
    session.out.rows(shown, columns | {"REPLICAS": "replicas", "STORED": "stored", "FREE": "free"})


@command(app, "quorum", examples=["ottla cluster quorum"])
def quorum(session: Session) -> None:
    """Show the controllers: who leads, who votes, who lags."""
    with session.out.waiting("The active controller is waited for …"), session.client() as client:
        found = cluster.describe_quorum(client)
    rows = [
        {
            "node": each.node,
            "role": "leader" if each.node == found.leader else "voter" if each in found.voters else "observer",
            "log_end_offset": each.log_end_offset,
            "lag": each.lag,
            "last_caught_up": each.last_caught_up_ms,
            "directory_id": each.directory_id,
        }
        for each in (*found.voters, *found.observers)
    ]
    if session.out.as_json:
        item = {"leader": found.leader, "leader_epoch": found.leader_epoch, "high_watermark": found.high_watermark}
        session.out.item({**item, "replicas": rows}, "")
        return
    session.out.item({}, f"leader {found.leader} in epoch {found.leader_epoch}, committed to {found.high_watermark}\n")
    # A leader that has not heard of a voter yet does not know how far it is.
    shown = [{**row, "log_end_offset": None, "lag": None} if row["log_end_offset"] == _UNKNOWN else row for row in rows]
    session.out.rows(shown, {"NODE": "node", "ROLE": "role", "LOG END": "log_end_offset", "LAG": "lag"})


@command(
    app,
    "elect",
    examples=["ottla cluster elect", "ottla cluster elect orders:0", "ottla cluster elect orders:0 --unclean --yes"],
)
def elect(
    session: Session,
    which: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC[:PARTITION,…]", help="Where; everywhere if not given.")
    ] = None,
    unclean: Annotated[bool, typer.Option("--unclean", help="Any replica that lives: what it lacks is lost.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Give partitions their preferred leaders back."""
    if unclean:
        if not which:
            raise typer.BadParameter("--unclean loses records: name the partitions.")
        confirm(f"An unclean leader of {', '.join(which)} may lack committed records: they are lost then.", yes=yes)
    with session.client() as client:
        partitions = parse_partitions(which, client.partition_count) if which else None
        held = cluster.elect_leaders(client, partitions, unclean=unclean)
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "elected": each.was_needed and each.error is None,
            "error": each.error,
        }
        for each in held
    ]
    changed = [row for row in rows if row["elected"] or row["error"]]
    session.out.rows(
        rows if session.out.as_json else changed,
        {"TOPIC": "topic", "PARTITION": "partition", "ELECTED": "elected", "ERROR": "error"},
        empty="Every leader is the preferred one already.",
    )
    if any(row["error"] for row in rows):
        raise typer.Exit(1)


@command(
    app,
    "reassign",
    examples=[
        "ottla cluster reassign orders --brokers 1,2,3 --dry-run",
        "ottla cluster reassign orders --brokers 4,5,6 --wait",
        "ottla cluster reassign orders --replicas 3",
        "ottla cluster reassign --list",
        "ottla cluster reassign orders --cancel",
    ],
)
def reassign(
    session: Session,
    names: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="The topics.")] = None,
    brokers: Annotated[str | None, typer.Option(help="Where to, as in 1,2,3; all brokers if not given.")] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-r", help="How many each partition is to have.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would be done.")] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Until it is done, with a progress bar.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show what is being moved.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Call off the moves of these topics.")] = False,
) -> None:
    """Move replicas: spread topics evenly over brokers, or change how many replicas they have."""
    with session.client() as client:
        if list_:
            _show_moves(session, client)
            return
        if not names:
            raise typer.BadParameter("Name the topics, or say --list.")
        if cancel:
            ongoing = [each for each in reassignment.list_moves(client) if each.topic in names]
            reassignment.cancel_moves(client, [TopicPartition(each.topic, each.partition) for each in ongoing])
            session.out.item({"cancelled": len(ongoing)}, f"{plural(len(ongoing), 'move')} called off")
            return
        moves = _plan(client, names, brokers, replicas)
        rows = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "before": list(each.before),
                "after": list(each.after),
                "started": not dry_run,
            }
            for each in moves
        ]
        if not dry_run and moves:
            reassignment.start_moves(client, moves)
        columns = {"TOPIC": "topic", "PARTITION": "partition", "BEFORE": "before", "AFTER": "after"}
        session.out.rows(rows, columns, empty="Everything is where it should be.")
        if dry_run:
            session.out.note("Nothing was moved; leave --dry-run out to do it.")
        elif wait and moves:
            _watch(session, client, {(each.topic, each.partition) for each in moves})


def _plan(
    client: BlockingClient, names: list[str], brokers: str | None, replicas: int | None
) -> list[reassignment.ReplicaMove]:
    known = cluster.describe_cluster(client).brokers
    alive = [each.node for each in known if not each.is_fenced]
    if brokers is None:
        wanted = alive
    else:
        parts = [part.strip() for part in brokers.split(",")]
        unknown = [part for part in parts if not part.isdecimal() or int(part) not in alive]
        if unknown:
            there = ", ".join(map(str, alive))
            raise StartupError(f"--brokers {brokers}: there is no broker {unknown[0]} now: choose among {there}.")
        wanted = list(dict.fromkeys(int(part) for part in parts))
    found = topics.list_topics(client, names)
    racks = {each.node: each.rack for each in known}
    return reassignment.plan_moves(found, wanted, racks=racks, replication_factor=replicas)


def _show_moves(session: Session, client: BlockingClient) -> None:
    rows = [
        {
            "topic": each.move.topic,
            "partition": each.move.partition,
            "adding": list(each.move.adding),
            "removing": list(each.move.removing),
            "copied_bytes": each.copied_bytes,
            "total_bytes": each.total_bytes,
        }
        for each in reassignment.progress_of(client, reassignment.list_moves(client))
    ]
    columns = {"TOPIC": "topic", "PARTITION": "partition", "ADDING": "adding", "REMOVING": "removing"}
    columns |= {"COPIED": "copied_bytes", "OF": "total_bytes"}
    session.out.rows(rows, columns, empty="Nothing is being moved.")


def _watch(session: Session, client: BlockingClient, wanted: set[tuple[str, int]]) -> None:
    """Until none of these is being moved. The bar counts bytes, of what is done too; on no terminal there is none."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    visible = sys.stderr.isatty() and not session.out.as_json
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not visible) as bar:
        task = bar.add_task("", total=None)
        totals: dict[tuple[str, int], int] = {}
        while True:
            left = [each for each in reassignment.list_moves(client) if (each.topic, each.partition) in wanted]
            if not left:
                break
            progress = {(each.move.topic, each.move.partition): each for each in reassignment.progress_of(client, left)}
            totals |= {key: each.total_bytes for key, each in progress.items()}
            copied = sum(progress[key].copied_bytes if key in progress else totals[key] for key in totals)
            total = max(sum(totals.values()), 1)
            bar.update(task, description=plural(len(left), "partition"), completed=copied, total=total)
            time.sleep(_LOOK_AGAIN_S)
    session.out.item({"done": True}, "done")


def _controller(client: BlockingClient, found: cluster.Cluster) -> int | None:
    """The active one; none if there is none, or if who asks may not know. Only of a cluster so old that it has no
    quorum the brokers know it."""
    try:
        return cluster.describe_quorum(client, timeout_ms=_CONTROLLER_MS).leader
    except KafkaError as error:
        return found.controller if error.code == ErrorCode.UNSUPPORTED_VERSION else None


def _is_silent(directories: list[log_dirs.LogDirectory]) -> bool:
    """Does the broker not answer? One that refuses to tell of its disks does."""
    refusals = [each.error.code for each in directories if each.error is not None and not each.path]
    return bool(refusals) and ErrorCode.CLUSTER_AUTHORIZATION_FAILED not in refusals
