"""`ottla snapshot`: topics with their configs, records and groups' positions, in one file and back."""

from __future__ import annotations

import fnmatch
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from ottla.admin import topics
from ottla.cli.output import plural
from ottla.cli.session import Session, command, confirm, group, open_session, pairs
from ottla.cli.snapshot_file import SnapshotFile, Sums, restore, save
from ottla.cli.times import now_ms, show_moment
from ottla.errors import StartupError

app = group("Topics with their groups' positions, in one file and back.")

File = Annotated[Path, typer.Argument(help="The snapshot.", show_default=False)]


@command(app, "save", examples=["ottla snapshot save before.zip", "ottla snapshot save orders.zip 'orders*'"])
def save_snapshot(
    session: Session,
    file: File,
    patterns: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Which; all if not given.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a file is replaced.")] = False,
) -> None:
    """Save topics: configs, committed records, and the positions of all groups in them."""
    if not file.absolute().parent.is_dir():
        raise StartupError(f"{file} is in a directory that does not exist: create it first.")
    if file.exists():
        confirm(f"{file} is there already, and is replaced.", yes=yes)
    with session.client() as client:
        there = [each.name for each in topics.list_topics(client) if not each.is_internal]
        for wanted in patterns or ["*"]:
            if not fnmatch.filter(there, wanted):
                raise StartupError(f"There is no topic {wanted}, so nothing was saved: see `ottla topic list`.")
        names = [each for each in there if any(fnmatch.fnmatchcase(each, wanted) for wanted in patterns or ["*"])]
        sums = save(client, file, names, now_ms(), session.out.note if sys.stderr.isatty() else _silent)
    _tell(session, file, sums, "saved to")


@command(
    app, "restore", examples=["ottla snapshot restore before.zip", "ottla snapshot restore a.zip --rename orders=copy"]
)
def restore_snapshot(
    session: Session,
    file: File,
    rename: Annotated[list[str] | None, typer.Option(metavar="OLD=NEW", help="Under another name.")] = None,
    replicas: Annotated[int, typer.Option("--replicas", "-r", help="How many; -1 is the cluster's default.")] = -1,
) -> None:
    """Make the topics of a snapshot again, with their offsets, and put groups where they were."""
    names = pairs(rename or [], "--rename")
    with SnapshotFile(file) as snapshot, session.client() as client:
        unknown = set(names) - {topic["name"] for topic in snapshot.manifest["topics"]}
        if unknown:
            raise StartupError(f"--rename: the snapshot has no topic {sorted(unknown)[0]}.")
        say = session.out.note if sys.stderr.isatty() else _silent
        sums = restore(client, snapshot, lambda name: names.get(name, name), replicas, say)
    _tell(session, file, sums, "restored from")


@command(app, "show", examples=["ottla snapshot show before.zip"])
def show_snapshot(session: Session, file: File) -> None:
    """Show what a snapshot holds, without any cluster."""
    with SnapshotFile(file) as snapshot:
        manifest = snapshot.manifest
    if session.out.as_json:
        session.out.item(manifest, "")
        return
    session.out.item({}, f"saved {show_moment(manifest['saved_at'])}\n")
    rows = [
        {
            "name": topic["name"],
            "partitions": len(topic["partitions"]),
            "records": sum(each["records"] for each in topic["partitions"]),
            "groups": [
                each["group"]
                for each in manifest["groups"]
                if any(offset["topic"] == topic["name"] for offset in each["offsets"])
            ],
        }
        for topic in manifest["topics"]
    ]
    session.out.rows(rows, {"TOPIC": "name", "PARTITIONS": "partitions", "RECORDS": "records", "GROUPS": "groups"})


@app.command("fork")
def fork_snapshot(
    file: File,
    port: Annotated[int, typer.Option(help="The port for clients; 0 picks a free one.")] = 0,
) -> None:
    """Serve a snapshot from a fresh node of its own, until it is stopped; nothing is kept.

    $ ottla snapshot save prod.zip 'orders*' --profile prod

    $ ottla snapshot fork prod.zip --port 9192
    """
    with SnapshotFile(file) as snapshot:
        arguments = ["up", "--ephemeral", "--port", str(port), "--registry", "off"]
        node = subprocess.Popen([sys.executable, "-m", "ottla.cli", *arguments], stdout=subprocess.PIPE, text=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: node.terminate())
        assert node.stdout is not None
        ready = node.stdout.readline()
        if not ready.startswith("ready: "):
            raise typer.Exit(node.wait() or 1)
        bootstrap = ready.split()[1]
        try:
            session = open_session(bootstrap=bootstrap)
            with session.client() as client:
                sums = restore(client, snapshot, lambda name: name, -1, _silent)
        except BaseException:
            node.terminate()
            node.wait()
            raise
    print(f"ready: {bootstrap} with {plural(sums.records, 'record')} of {plural(sums.topics, 'topic')}", flush=True)
    raise typer.Exit(node.wait())


def _tell(session: Session, file: Path, sums: Sums, done: str) -> None:
    item = {"file": str(file), "topics": sums.topics, "partitions": sums.partitions, "records": sums.records}
    session.out.item(
        {**item, "groups": sums.groups, "shifted": sums.shifted},
        f"{plural(sums.records, 'record')} of {plural(sums.topics, 'topic')} and the positions of "
        f"{plural(sums.groups, 'group')} {done} {file}",
    )
    if sums.shifted:
        session.out.note(
            f"{plural(sums.shifted, 'partition')} had holes between their records (compaction, transactions): offsets "
            "behind a hole are smaller now, and groups' positions with them."
        )


def _silent(text: str) -> None:
    pass
