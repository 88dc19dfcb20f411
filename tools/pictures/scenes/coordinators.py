"""What coordinators bring about: a transaction that readers of committed records wait for, and a group that shares out
its partitions."""

from __future__ import annotations

from ottla.model import TopicPartition
from ottla.sim.group_clients import MemberOptions
from ottla.sim.group_members import ConsumerMember
from ottla.sim.transaction_clients import Transactor, TransactorOptions
from tools.pictures.curves import Plot, changes, legend
from tools.pictures.lanes import LANE, lane, spans
from tools.pictures.stage import PATIENCE_S, Stage, stage
from tools.pictures.svg import COLOURS, Drawing

WIDTH = 860
PARTITIONS = 6
BEAT_S = 0.25


def a_transaction() -> str:
    """Two transactions, one committed and one aborted, between records that belong to none."""
    with stage(seed=3, latency_s=0.005, coordinated=True) as shown:
        options = TransactorOptions(timeout_ms=60_000, stalls=0.0, misbehaves=0.0)
        writer = Transactor(
            shown.another_client("t"), "orders-writer", [shown.place], options, shown.simulation.history
        )
        shown.do(writer.client.refresh([shown.place.topic]))
        shown.do(writer.identify(shown.now + PATIENCE_S))
        shown.passes(1.0)
        begin = shown.now
        shown.meanwhile(_transact(shown, writer))
        for number in range(16):
            shown.meanwhile(shown.producer(number).send(1))
            shown.passes(0.2)
        end = shown.now
        leader, history, recording = shown.leader.id, shown.simulation.history, shown.recording
    moments = recording.between(begin, end)
    draw = Drawing(
        WIDTH,
        400,
        title="Who reads committed records sees no further than the first open transaction",
        description="High watermark and last stable offset of a partition while two transactions come and go.",
    )
    ends = [moment.replicas[leader].end for moment in moments]
    plot = Plot(
        draw,
        top=96,
        right=640,
        bottom=348,
        begin=begin,
        end=end,
        low=moments[0].replicas[leader].stable,
        high=max(ends),
    )
    plot.axes(zero=begin, unit="s")
    plot.steps(changes([(moment.at, moment.replicas[leader].high_watermark) for moment in moments]), kind="one-line")
    plot.steps(
        changes([(moment.at, moment.replicas[leader].stable) for moment in moments]), kind="dashed two-line", shift=2
    )
    for at, transaction in enumerate(history.transactions):
        first, ended = transaction.sends[0], transaction.ended
        assert ended is not None
        plot.moment(first.invoked, f"transaction {at + 1} begins", row=1)
        plot.moment(ended, "it is committed" if at == 0 else "it is aborted", row=0)
    for send in history.sends:
        if send.completed is not None and send.offset is not None and send.completed <= end:
            kind = "three" if send.transaction is None else "four"
            draw.dot(plot.x(send.completed), plot.y(send.offset + 1), kind=kind, radius=3.4)
    legend(draw, 660, 120, [("high watermark", "one-line"), ("last stable offset", "dashed two-line")])
    for at, (words, kind) in enumerate((("a record", "three"), ("a record of a transaction", "four"))):
        draw.dot(673, 120 + 22 * (2 + at), kind=kind)
        draw.text(694, 124 + 22 * (2 + at), words, kind="small")
    return draw.render()


async def _transact(shown: Stage, writer: Transactor) -> None:
    deadline = shown.now + PATIENCE_S
    await writer.client.sleep(0.5)
    for commit in (True, False):
        transaction = writer.begin()
        await writer.send(transaction, shown.place, 1, deadline)
        await writer.client.sleep(0.4)
        await writer.send(transaction, shown.place, 1, deadline)
        await writer.client.sleep(0.4)
        await writer.end(transaction, commit, deadline)
        await writer.client.sleep(0.5)


def a_group_shares() -> str:
    """Three members come one after another, and one dies: who owns each partition, over time."""
    settings = {
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.heartbeat.interval.ms": "250",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
    }
    with stage(seed=5, partitions=PARTITIONS, latency_s=0.005, coordinated=True, settings=settings) as shown:
        members = {name: _member(shown, name) for name in ("ann", "bob", "cleo")}
        owners: list[tuple[float, dict[TopicPartition, str]]] = []
        alive: set[str] = set()

        def look() -> None:
            owned = {place: name for name in sorted(alive) for place in members[name].positions}
            if not owners or owners[-1][1] != owned:
                owners.append((shown.now, owned))

        shown.watchers.append(look)
        begin = shown.now
        came: dict[str, float] = {}
        for name, member in members.items():
            alive.add(name)
            came[name] = shown.now
            shown.meanwhile(_live(member, alive, name))
            shown.passes(2.5)
        died = shown.now
        alive.discard("bob")
        shown.passes(5.0)
        end = shown.now
        places = list(shown.simulation.places)
    draw = Drawing(
        WIDTH,
        400,
        title="A group shares its partitions out, one at a time, and nobody stops who need not",
        description="Owners of six partitions over time, as three members join a group and one of them dies.",
    )
    plot = Plot(draw, left=110, top=96, right=836, bottom=312, begin=begin, end=end, low=0, high=1)
    plot.axes(zero=begin, unit="s", offsets=False)
    kinds = {name: f"{COLOURS[at]}-pale" for at, name in enumerate(members)}
    for at, place in enumerate(places):
        states = [(when, (owned[place], kinds[owned[place]]) if place in owned else None) for when, owned in owners]
        lane(draw, plot, 102 + (LANE + 9) * at, f"partition {place.partition}", spans(states, end))
    for name, when in came.items():
        plot.moment(when, f"{name} joins")
    plot.moment(died, "bob dies")
    for at, words in enumerate(
        (
            "A gap is nobody's: a partition is given to another only when its owner has let go of it.",
            "Of who dies the group hears nothing, and waits until its session has ended (2 s).",
        )
    ):
        draw.text(110, 372 + 16 * at, words, kind="soft small")
    return draw.render()


def _member(shown: Stage, name: str) -> ConsumerMember:
    client = shown.another_client(name)
    shown.do(client.refresh([shown.place.topic]))
    options = MemberOptions(session_timeout_ms=2000)
    return ConsumerMember(client, "readers", list(shown.simulation.places), options, shown.simulation.history)


async def _live(member: ConsumerMember, alive: set[str], name: str) -> None:
    member.begin()
    while name in alive and await member.beat():
        await member.client.sleep(BEAT_S)
