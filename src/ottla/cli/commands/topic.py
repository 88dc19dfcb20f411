"""`ottla topic`: making, looking at, changing and deleting topics."""

from __future__ import annotations

import fnmatch
from typing import Annotated, Any

import typer

from ottla.admin import configs, topics
from ottla.cli import complete
from ottla.cli.output import plural, size
from ottla.cli.session import Session, command, confirm, group, pairs, parse_partitions
from ottla.errors import ErrorCode, KafkaError, UsageError
from ottla.model import TopicPartition

app = group("Topics: make them, look at them, change and delete them.")

Name = Annotated[str, typer.Argument(help="The topic.", show_default=False, autocompletion=complete.topics)]
Names = Annotated[list[str], typer.Argument(help="The topics.", show_default=False)]
KnownNames = Annotated[
    list[str], typer.Argument(help="The topics.", show_default=False, autocompletion=complete.topics)
]
Settings = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="One of the topic's configs.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@command(app, "list", examples=["ottla topic list", "ottla topic list 'orders*' --json"])
def list_topics(
    session: Session,
    pattern: Annotated[str, typer.Argument(help="Only these, as in 'orders*'.")] = "*",
    internal: Annotated[bool, typer.Option("--internal", "-i", help="The cluster's own topics too.")] = False,
) -> None:
    """List topics with their partitions, replicas and sizes.

    RECORDS are offsets, from the first to the last: at most so many, since markers of transactions have an offset each,
    and compaction leaves gaps.
    """
    with session.client() as client:
        found = [
            each
            for each in topics.list_topics(client)
            if fnmatch.fnmatchcase(each.name, pattern) and (internal or not each.is_internal)
        ]
        extents = topics.extents_of(client, found)
    rows: list[dict[str, Any]] = []
    for topic in found:
        held = [extents[TopicPartition(topic.name, each.partition)] for each in topic.partitions]
        records = [each.records for each in held]
        sizes = [each.size_bytes for each in held]
        stored = None if None in sizes else sum(each or 0 for each in sizes)  # Part of a sum would be a wrong one.
        rows.append(
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "internal": topic.is_internal,
                "partitions": len(topic.partitions),
                "replication_factor": topic.replication_factor,
                "records": None if None in records else sum(each or 0 for each in records),
                "size_bytes": stored,
                "size": size(stored),
                "under_replicated": sum(each.is_under_replicated for each in topic.partitions),
                "offline": sum(each.is_offline for each in topic.partitions),
            }
        )
    columns = {
        "NAME": "name",
        "PARTITIONS": "partitions",
        "REPLICAS": "replication_factor",
        "RECORDS": "records",
        "SIZE": "size",
    }
    if any(row["under_replicated"] or row["offline"] for row in rows):
        columns |= {"UNDER-REPLICATED": "under_replicated", "OFFLINE": "offline"}
    session.out.rows(rows, columns, empty="There are no topics; make one with `ottla topic create NAME`.")


@command(
    app,
    "create",
    examples=[
        "ottla topic create orders",
        "ottla topic create orders -p 6 -r 3 -c retention.ms=86400000 -c cleanup.policy=delete",
    ],
)
def create_topics(
    session: Session,
    names: Names,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="How many; -1 is the cluster's default.")] = -1,
    replicas: Annotated[int, typer.Option("--replicas", "-r", help="How many; -1 is the cluster's default.")] = -1,
    config: Settings = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="One that is there is no mistake.")] = False,
) -> None:
    """Make topics."""
    with session.client() as client:
        for name in names:
            created = True
            try:
                topics.create_topic(
                    client,
                    name,
                    partitions=partitions,
                    replication_factor=replicas,
                    configs=pairs(config or [], "--config"),
                )
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    raise
                created = False
            said = f"topic {name} created" if created else f"topic {name} was there already"
            session.out.item({"name": name, "created": created}, said)


@command(app, "describe", examples=["ottla topic describe orders", "ottla topic describe orders --all-configs"])
def describe_topic(
    session: Session,
    name: Name,
    all_configs: Annotated[bool, typer.Option("--all-configs", "-a", help="Defaults too.")] = False,
) -> None:
    """Show a topic's partitions with leaders, replicas and offsets, and its configs."""
    with session.client() as client:
        (topic,) = topics.describe_topics(client, [name])
        extents = topics.extents_of(client, [topic])
        entries: list[configs.ConfigEntry] | None = None
        try:
            entries = configs.describe_configs(client, configs.ResourceKind.TOPIC, name)
        except KafkaError as error:  # Whoever may see a topic may not always see its configs.
            if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
    shown = [each for each in entries or [] if all_configs or each.is_own]
    rows: list[dict[str, Any]] = []
    for each in topic.partitions:
        extent = extents[TopicPartition(name, each.partition)]
        rows.append(
            {
                "partition": each.partition,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "eligible_leaders": list(each.elr),
                "offline_replicas": list(each.offline_replicas),
                "start_offset": extent.start_offset,
                "high_watermark": extent.end_offset,
                "size_bytes": extent.size_bytes,
            }
        )
    if session.out.as_json:
        values = [{"name": each.name, "value": each.value, "source": each.source.text} for each in shown]
        item = {"name": name, "topic_id": topic.topic_id, "internal": topic.is_internal}
        session.out.item({**item, "partitions": rows, "configs": None if entries is None else values}, "")
        return
    session.out.item(
        {},
        f"{name}  {plural(len(rows), 'partition')}, {plural(topic.replication_factor, 'replica')}, "
        f"id {topic.topic_id}\n",
    )
    shown_rows = [{**row, "size": size(row["size_bytes"])} for row in rows]
    columns = {"PARTITION": "partition", "LEADER": "leader", "EPOCH": "leader_epoch", "REPLICAS": "replicas"}
    columns |= {"ISR": "isr"}
    if any(row["eligible_leaders"] for row in rows):
        columns |= {"ELR": "eligible_leaders"}
    columns |= {"START": "start_offset", "END": "high_watermark", "SIZE": "size"}
    session.out.rows(shown_rows, columns)
    if entries is None:
        session.out.note("Its configs are not shown: you have no right to describe them.")
    if shown:
        session.out.item({}, "")
        session.out.rows(
            [{"name": each.name, "value": each.value, "source": each.source.text} for each in shown],
            {"CONFIG": "name", "VALUE": "value", "FROM": "source"},
        )


@command(
    app,
    "alter",
    examples=["ottla topic alter orders -c retention.ms=3600000", "ottla topic alter orders -d retention.ms"],
)
def alter_topic(
    session: Session,
    name: Name,
    config: Settings = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", "-d", metavar="KEY", help="Back to the default.")
    ] = None,
) -> None:
    """Change a topic's configs."""
    changed = pairs(config or [], "--config")
    if not changed and not delete:
        raise typer.BadParameter("Nothing to change: give --config KEY=VALUE or --delete KEY.")
    with session.client() as client:
        configs.alter_configs(client, configs.ResourceKind.TOPIC, name, set=changed, delete=delete or [])
    session.out.item({"name": name, "set": changed, "deleted": delete or []}, f"topic {name} changed")


@command(app, "delete", examples=["ottla topic delete orders", "ottla topic delete old-a old-b --yes"])
def delete_topics(session: Session, names: KnownNames, yes: Yes = False) -> None:
    """Delete topics with all of their records."""
    confirm(f"This deletes {', '.join(names)} with all records, for good.", yes=yes)
    with session.client() as client:
        for name in names:
            topics.delete_topic(client, name)
            session.out.item({"name": name, "deleted": True}, f"topic {name} deleted")


@command(app, "add-partitions", examples=["ottla topic add-partitions orders 12"])
def add_partitions(
    session: Session, name: Name, count: Annotated[int, typer.Argument(help="How many there are to be in all.")]
) -> None:
    """Give a topic more partitions. Keys are spread anew: what came to one partition may go to another from now on."""
    with session.client() as client:
        topics.add_partitions(client, name, count)
    session.out.item({"name": name, "partitions": count}, f"topic {name} has {plural(count, 'partition')}")


@command(
    app,
    "trim",
    examples=[
        "ottla topic trim orders --before 1000",
        "ottla topic trim orders:0,1 --before @2026-01-31",
        "ottla topic trim orders --before end --yes",
    ],
)
def trim_topic(
    session: Session,
    which: Annotated[
        list[str], typer.Argument(metavar="TOPIC[:PARTITION,…]", help="What to trim.", autocompletion=complete.topics)
    ],
    before: Annotated[str, typer.Option("--before", help="An offset, `end`, or a time as in @2026-01-31 or @-7d.")],
    yes: Yes = False,
) -> None:
    """Delete the oldest records of topics: those before an offset or a time."""
    confirm(f"This deletes records of {', '.join(which)}, for good.", yes=yes)
    with session.client() as client:
        partitions = parse_partitions(which, client.partition_count)
        starts = topics.delete_records(client, _trim_points(session, partitions, before))
    rows = [{"topic": each.topic, "partition": each.partition, "start_offset": starts[each]} for each in sorted(starts)]
    session.out.rows(rows, {"TOPIC": "topic", "PARTITION": "partition", "START": "start_offset"})


def _trim_points(session: Session, partitions: list[TopicPartition], before: str) -> dict[TopicPartition, int]:
    from ottla.admin.offsets import list_offsets
    from ottla.cli.times import parse_moment
    from ottla.model import NO_OFFSET

    if before == "end":
        return dict.fromkeys(partitions, topics.TO_THE_END)
    if before.isdecimal():
        return dict.fromkeys(partitions, int(before))
    if not before.startswith("@"):
        raise UsageError(f"--before {before}: write an offset, `end`, or a time after an @.")
    with session.client() as client:
        found = list_offsets(client, dict.fromkeys(partitions, parse_moment(before[1:])))
    return {each: topics.TO_THE_END if found[each].offset == NO_OFFSET else found[each].offset for each in partitions}
