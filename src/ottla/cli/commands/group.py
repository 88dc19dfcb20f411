"""`ottla group`: consumer groups, how far behind they are, and moving them."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.admin import groups, seeking
from ottla.cli import complete
from ottla.cli.output import plural
from ottla.cli.session import Session, command, confirm, group, parse_partitions
from ottla.errors import StartupError
from ottla.model import TopicPartition

app = group("Consumer groups: see how far behind they are, move them, delete them.")

Name = Annotated[str, typer.Argument(help="The group.", show_default=False, autocompletion=complete.groups)]


@command(app, "list", examples=["ottla group list", "ottla group list --lag"])
def list_groups(
    session: Session, lag: Annotated[bool, typer.Option("--lag", help="How far behind each is, too.")] = False
) -> None:
    """List consumer groups with their states."""
    rows = []
    with session.client() as client:
        for each in groups.list_groups(client):
            row: dict[str, Any] = {
                "group": each.group_id,
                "state": each.state,
                "protocol": each.protocol,
                "coordinator": each.coordinator,
            }
            if lag:
                described = groups.describe_group(client, each.group_id)
                lags = [partition.lag for partition in groups.lag_of(client, described)]
                row |= {"members": len(described.members), "lag": sum(found or 0 for found in lags)}
            rows.append(row)
    columns = {"GROUP": "group", "STATE": "state", "PROTOCOL": "protocol", "COORDINATOR": "coordinator"}
    if lag:
        columns |= {"MEMBERS": "members", "LAG": "lag"}
    session.out.rows(rows, columns, empty="There are no groups.")


@command(app, "describe", examples=["ottla group describe billing", "ottla group describe billing --members"])
def describe_group(
    session: Session,
    name: Name,
    members: Annotated[bool, typer.Option("--members", "-m", help="Show members instead of partitions.")] = False,
) -> None:
    """Show a group's positions and its lag, partition by partition; or its members."""
    with session.client() as client:
        found = groups.describe_group(client, name)
        lags = groups.lag_of(client, found)
    partition_rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "committed": None if each.committed is None else each.committed.offset,
            "end_offset": each.end_offset,
            "lag": each.lag,
            "metadata": None if each.committed is None else each.committed.metadata,
            "member": None if each.member is None else each.member.member_id,
            "client": None if each.member is None else each.member.client_id,
            "host": None if each.member is None else each.member.host,
        }
        for each in lags
    ]
    member_rows = [
        {
            "member": each.member_id,
            "instance": each.instance_id,
            "client": each.client_id,
            "host": each.host,
            "epoch": each.epoch,
            "assigned": [str(partition) for partition in each.assigned],
        }
        for each in found.members
    ]
    total = sum(each.lag or 0 for each in lags)
    if session.out.as_json:
        item = {
            "group": name,
            "state": found.state,
            "protocol": found.protocol,
            "assignor": found.assignor,
            "coordinator": found.coordinator,
            "lag": total,
        }
        session.out.item({**item, "partitions": partition_rows, "members": member_rows}, "")
        return
    session.out.item(
        {}, f"{name}  {found.state}, {found.protocol}, {plural(len(found.members), 'member')}, lag {total}\n"
    )
    if members:
        columns = {"MEMBER": "member", "CLIENT": "client", "HOST": "host", "ASSIGNED": "assigned"}
        session.out.rows(member_rows, columns, empty="The group has no members.")
        return
    columns = {"TOPIC": "topic", "PARTITION": "partition", "COMMITTED": "committed", "END": "end_offset", "LAG": "lag"}
    if found.members:
        columns |= {"CLIENT": "client", "HOST": "host"}
    session.out.rows(partition_rows, columns, empty="The group has no position anywhere.")


@command(
    app,
    "seek",
    examples=[
        "ottla group seek billing --to beginning --dry-run",
        "ottla group seek billing --to @2026-01-31T12:00:00Z orders",
        "ottla group seek billing --to 1000 orders:0,1",
        "ottla group seek billing --by -100",
        "ottla group seek shadow --like billing --new",
        "ottla group seek billing --from-file offsets.csv",
    ],
)
def seek_group(
    session: Session,
    name: Name,
    which: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC[:PARTITION,…]", help="Where; everywhere the group has a position if not given."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="beginning, end, an offset, or a time as in @-1h.")] = None,
    by: Annotated[int | None, typer.Option("--by", help="So many records on, or back.")] = None,
    like: Annotated[str | None, typer.Option("--like", help="Where this other group is.")] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="Lines of topic,partition,offset; - is standard input.")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="If there is no such group, make it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would be done.")] = False,
) -> None:
    """Move a group that has no members to another position."""
    if sum(each is not None for each in (to, by, like, from_file)) != 1:
        raise typer.BadParameter("Say where to go with one of --to, --by, --like and --from-file.")
    target = _target(to, by, like, from_file)
    waiting = session.out.waiting("Not every leader answers; they are waited for, a minute at most …")
    with waiting, session.client() as client:
        partitions = parse_partitions(which, client.partition_count) if which else None
        plan = seeking.plan_seek(client, name, target, partitions)
        if plan.is_new and not new:  # A slip of the pen would move nobody, and leave a group that nobody reads as.
            raise StartupError(f"There is no group {name}: see `ottla group list`, or say --new to make it.")
        if not dry_run:
            seeking.apply_seek(client, plan)
    rows = [
        {
            "group": name,
            "topic": each.topic,
            "partition": each.partition,
            "before": each.before,
            "after": each.after,
            "lag": each.lag_after,
            "applied": not dry_run,
        }
        for each in plan.moves
    ]
    columns = {"TOPIC": "topic", "PARTITION": "partition", "BEFORE": "before", "AFTER": "after", "LAG": "lag"}
    session.out.rows(rows, columns)
    clamped = [each for each in plan.moves if each.asked != each.after]
    if clamped:
        session.out.note(
            f"{len(clamped)} of these {'was' if len(clamped) == 1 else 'were'} asked to go where the log has nothing; "
            "its nearest end is used."
        )
    if dry_run:
        session.out.note("Nothing was changed; leave --dry-run out to do it.")


@command(app, "delete", examples=["ottla group delete old-a old-b --yes", "ottla group delete billing --topic orders"])
def delete_groups(
    session: Session,
    names: Annotated[list[str], typer.Argument(help="The groups.", show_default=False, autocompletion=complete.groups)],
    topic: Annotated[str | None, typer.Option(help="Forget only the positions in this topic.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete groups without members, with their positions; or their positions in one topic."""
    where = "" if topic is None else f" in {topic}"
    confirm(f"This forgets how far {', '.join(names)} had come{where}, for good.", yes=yes)
    with session.client() as client:
        for name in names:
            if topic is None:
                groups.delete_group(client, name)
                session.out.item({"group": name, "deleted": True}, f"group {name} deleted")
                continue
            wanted = [each for each in groups.committed_offsets(client, name) if each.topic == topic]
            if not wanted:
                raise StartupError(f"The group {name} has no position in {topic}.")
            groups.delete_offsets(client, name, wanted)
            item = {"group": name, "topic": topic, "positions_deleted": len(wanted)}
            session.out.item(item, f"group {name} has no position in {topic} any more")


def _target(to: str | None, by: int | None, like: str | None, from_file: Path | None) -> seeking.Target:
    from ottla.cli.times import parse_moment

    if by is not None:
        return seeking.ShiftBy(by)
    if like is not None:
        return seeking.ToGroup(like)
    if from_file is not None:
        return seeking.ToEach(_read_offsets(from_file))
    assert to is not None  # One of the four is given.
    if to in ("beginning", "earliest", "start"):
        return seeking.ToEarliest()
    if to in ("end", "latest"):
        return seeking.ToLatest()
    if to.isdecimal():
        return seeking.ToOffset(int(to))
    if to.startswith("@"):
        return seeking.ToTime(parse_moment(to[1:]))
    raise typer.BadParameter(f"--to {to}: write beginning, end, an offset, or a time after an @.")


def _read_offsets(path: Path) -> dict[TopicPartition, int]:
    """The lines that kafka-consumer-groups exports too: topic,partition,offset."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except OSError as error:
        raise StartupError(f"{path} cannot be read: {error.strerror}.") from None
    found = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        try:
            topic, partition, offset = (part.strip().strip('"') for part in row)
            found[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise StartupError(f"Line {number} of {path} is not of the form topic,partition,offset.") from None
    if not found:
        raise StartupError(f"{path} names no positions.")
    return found
