"""`/brokers`: the nodes, their disks, and the controllers' quorum."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from nicegui import ui

from ottla.admin.asking import why
from ottla.admin.cluster import Broker, Quorum, QuorumReplica
from ottla.admin.log_dirs import LogDirectory
from ottla.console.console import Console
from ottla.console.markup import Child, Markup, join, tag
from ottla.console.pages.frame import RESPONSE_TIMEOUT_S, frame, live, query_of, unanswered
from ottla.console.poller import Look
from ottla.console.tables import Column, facts, table
from ottla.console.units import NOTHING, count, duration, size


def register(console: Console) -> None:
    @ui.page("/brokers", response_timeout=RESPONSE_TIMEOUT_S)
    async def brokers(request: Request) -> None:
        query = query_of(request)
        await console.poller.first()
        with frame(console, "Nodes", "/brokers"):
            live(lambda: page(console.poller.newest, query))


def page(look: Look | None, query: Mapping[str, str]) -> Markup:
    if look is None:
        return unanswered()
    return join(
        facts([("Cluster", tag("code", look.cluster.cluster_id)), ("Size", count(len(look.cluster.brokers), "node"))]),
        table(
            look.cluster.brokers,
            _columns(look),
            key=lambda each: str(each.node),
            caption="Nodes",
            query=query,
            empty="The cluster names no node.",
        ),
        tag("h2", "Quorum of controllers"),
        _quorum(look),
        tag("h2", "Disks"),
        table(
            look.directories,
            _disk_columns(),
            key=lambda each: f"{each.node}:{each.path}",
            caption="Directories of the nodes",
            query={},
            empty="The nodes tell nothing of their disks.",
        ),
    )


def _columns(look: Look) -> list[Column[Broker]]:
    partitions = [each for topic in look.topics.values() for each in topic.partitions]
    leads = {broker.node: sum(each.leader == broker.node for each in partitions) for broker in look.cluster.brokers}
    holds = {broker.node: sum(broker.node in each.replicas for each in partitions) for broker in look.cluster.brokers}
    telling = {each.node for each in look.directories if each.error is None}
    stored = {node: sum(sizes.get(node, 0) for sizes in look.sizes.values()) for node in telling}

    def state(each: Broker) -> Child:
        return tag(
            "span",
            "not serving" if each.is_fenced else "serving",
            class_=f"badge {'bad' if each.is_fenced else 'good'}",
        )

    return [
        Column(title="node", cell=lambda each: f"Node {each.node}", sort=lambda each: each.node),
        Column(title="state", cell=state, sort=lambda each: each.is_fenced),
        Column(title="address", cell=lambda each: tag("code", f"{each.host}:{each.port}")),
        Column(title="rack", cell=lambda each: each.rack or NOTHING),
        Column(
            title="leads",
            cell=lambda each: count(leads[each.node], "partition"),
            sort=lambda each: leads[each.node],
            number=True,
        ),
        Column(
            title="holds",
            cell=lambda each: count(holds[each.node], "replica"),
            sort=lambda each: holds[each.node],
            number=True,
        ),
        Column(
            title="stored",
            cell=lambda each: size(stored.get(each.node)),
            sort=lambda each: stored.get(each.node, 0),
            number=True,
        ),
    ]


def _quorum(look: Look) -> Child:
    quorum = look.quorum
    if quorum is None:
        return tag("p", "The cluster does not tell of its quorum.", class_="empty")
    now_ms = int(look.time_s * 1000)
    roles = dict.fromkeys(quorum.voters, "voter") | dict.fromkeys(quorum.observers, "observer")
    columns = [
        Column[QuorumReplica](title="controller", cell=lambda each: f"Node {each.node}"),
        Column(title="role", cell=lambda each: _role(each, quorum, roles[each])),
        Column(
            title="log end",
            cell=lambda each: f"offset {count(each.log_end_offset)}" if _heard(each) else NOTHING,
            number=True,
        ),
        Column(title="behind", cell=lambda each: count(each.lag if _heard(each) else None, "record"), number=True),
        Column(title="last caught up", cell=lambda each: _ago(each, quorum, now_ms), number=True),
    ]
    return [
        facts(
            [
                ("Leader", f"node {quorum.leader}"),
                ("Epoch", count(quorum.leader_epoch)),
                ("High watermark", f"offset {count(quorum.high_watermark)}"),
            ]
        ),
        table(
            roles,
            columns,
            key=lambda each: f"{each.node}:{each.directory_id}",
            caption="Controllers",
            query={},
            empty="It names nobody.",
        ),
    ]


def _role(each: QuorumReplica, quorum: Quorum, role: str) -> Markup:
    leads = each.node == quorum.leader and role == "voter"
    return tag("span", "leader" if leads else role, class_=f"badge{' good' if leads else ''}")


def _heard(each: QuorumReplica) -> bool:
    """Has the leader heard of it since it leads?"""
    return each.log_end_offset >= 0


def _ago(each: QuorumReplica, quorum: Quorum, now_ms: int) -> str:
    if each.node == quorum.leader:
        return "always"
    return NOTHING if each.last_caught_up_ms < 0 else f"{duration(max(0, now_ms - each.last_caught_up_ms))} ago"


def _disk_columns() -> list[Column[LogDirectory]]:
    def room(each: LogDirectory) -> str:
        if each.total_bytes < 0:
            return NOTHING
        return f"{size(each.usable_bytes)} of {size(each.total_bytes)}"

    return [
        Column(title="node", cell=lambda each: f"Node {each.node}"),
        Column(title="directory", cell=lambda each: tag("code", each.path)),
        Column(
            title="state",
            cell=lambda each: (
                tag("span", "well", class_="badge good")
                if each.error is None
                else tag("span", why(each.error), class_="badge bad")
            ),
        ),
        Column(title="holds", cell=lambda each: count(len(each.replicas), "replica"), number=True),
        Column(
            title="stored", cell=lambda each: size(sum(replica.size_bytes for replica in each.replicas)), number=True
        ),
        Column(title="free on the volume", cell=room, number=True),
    ]
