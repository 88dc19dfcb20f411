"""A partition with three replicas: how records are committed, how a follower falls out of sync, and what an election
leaves behind."""

from __future__ import annotations

from ottla.sim.cluster import Machine
from ottla.sim.lanes import Lane
from tools.pictures.cells import CELL, ROW, colours_of, offsets, panel
from tools.pictures.curves import Plot, changes, legend
from tools.pictures.lanes import LANE, lane, spans
from tools.pictures.recording import Moment, Recording
from tools.pictures.stage import Stage, stage
from tools.pictures.svg import COLOURS, Drawing

WIDTH = 860


def records_are_committed() -> str:
    """Four batches with acks=all: the leader's log grows first, the followers' after it, the high watermark last."""
    with stage(latency_s=0.02) as shown:
        begin = shown.now
        lanes = [shown.producer(number) for number in range(4)]
        for producer, size, pause_s in zip(lanes, (3, 2, 4, 1), (0.14, 0.18, 0.2, 0.22), strict=True):
            shown.meanwhile(producer.send(size))
            shown.passes(pause_s)
        end = shown.now
        leader, sends = shown.leader.id, list(shown.simulation.history.sends)
        draw, plot = _offsets_drawing(
            shown.recording,
            begin - 0.03,
            end,
            height=400,
            title="A record is committed when every replica in sync has it",
            description="Log ends of three replicas and the leader's high watermark while four batches are written.",
        )
        plot.axes(zero=begin, unit="ms")
        _log_ends(plot, shown.recording, begin - 0.03, end, leader)
        for at, send in enumerate(sends):
            size = len(send.values)
            plot.moment(send.invoked, f"{size} record{'s' if size > 1 else ''} sent", row=at % 2)
            assert send.completed is not None
            assert send.offset is not None
            draw.dot(plot.x(send.completed), plot.y(send.offset + len(send.values)), kind="alarm")
        _replica_legend(draw, shown.recording.at(begin), leader)
        draw.dot(673, 120 + 22 * 4, kind="alarm")
        draw.text(694, 124 + 22 * 4, "the producer has its answer", kind="small")
        return draw.render()


def in_and_out_of_sync() -> str:
    """A follower stands still: the high watermark waits for it, then goes on without it, until it has caught up."""
    settings = {
        "replica.lag.time.max.ms": "2000",
        "broker.session.timeout.ms": "30000",
        "broker.heartbeat.interval.ms": "1000",
    }
    with stage(latency_s=0.005, settings=settings) as shown:
        begin, leader = shown.now, shown.leader
        slow = next(each for each in shown.cluster.brokers if each is not leader and each is not shown.controller)
        producers = [shown.producer(number) for number in range(50)]
        for at, producer in enumerate(producers[:46]):
            shown.meanwhile(producer.send(1))
            if at == 6:
                slow.pause()
            if at == 30:
                slow.resume()
            shown.passes(0.2)
        end = shown.now
        recording = shown.recording
        out = recording.when(lambda moment: slow.id not in moment.isr, after=begin)
        back = recording.when(lambda moment: slow.id in moment.isr, after=out)
        draw, plot = _offsets_drawing(
            recording,
            begin,
            end,
            height=470,
            bottom=300,
            title="Who does not keep up leaves the in-sync set, and the others go on",
            description="A follower stops; the high watermark stands still until the in-sync set is without it.",
        )
        plot.axes(zero=begin, unit="s")
        _log_ends(plot, recording, begin, end, leader.id)
        plot.moment(begin + 1.2, f"node {slow.id} stands still", row=1)
        plot.moment(out, "it leaves the set", row=0)
        plot.moment(begin + 6.0, "it goes on", row=1)
        plot.moment(back, "it is in sync again", row=0)
        draw.text(20, 358, "in sync", kind="bold")
        for at, node in enumerate(sorted(recording.at(begin).replicas)):
            states = [
                (moment.at, ("in sync", f"{COLOURS[at]}-pale") if node in moment.isr else None)
                for moment in recording.between(begin, end)
            ]
            lane(draw, plot, 368 + (LANE + 6) * at, "", spans(states, end))
            draw.text(20, 368 + (LANE + 6) * at + 17, f"{node}", kind="small")
        _replica_legend(draw, recording.at(begin), leader.id)
        return draw.render()


def tails_are_cut() -> str:
    """A leader that is cut off takes records that nobody else gets. Another is elected; when the first is back, what
    only it had is cut off its log."""
    with stage(seed=4, latency_s=0.005) as shown:
        first = shown.leader
        _send(shown, shown.producer(0), 3)
        moments = [(shown.recording.moments[-1], "1. Everybody has the same, and it is committed")]
        shown.cut_off(first)
        _send(shown, shown.producer(1, acks=1), 3)
        moments.append(
            (shown.recording.moments[-1], f"2. Node {first.id} is cut off, and takes three more with acks=1")
        )
        shown.until(lambda: shown.recording.moments[-1].leader not in (first.id, -1))
        shown.until(lambda: shown.leader.serving and _leads(shown.leader, shown))
        # Whom a client asks it chooses by chance, and the old leader knows nothing of the new one.
        while shown.client.leaders[shown.place].node != shown.leader.id:
            shown.do(shown.client.refresh([shown.place.topic]))
        _send(shown, shown.producer(2), 2)
        others = f"3. Node {shown.leader.id} leads a new epoch, and commits two"
        moments.append((shown.recording.moments[-1], others))
        shown.simulation.fabric.heal_all()
        shown.until(lambda: first.id in shown.recording.moments[-1].isr and _all_alike(shown.recording.moments[-1]))
        shown.passes(1.0)
        moments.append((shown.recording.moments[-1], f"4. Node {first.id} is back: its tail is cut, and copied anew"))
    logs = [each for moment, _ in moments for each in moment.replicas.values()]
    colours = colours_of([each.epoch_of(offset) for each in logs for offset in range(each.end)])
    end = max(each.end for each in logs)
    draw = Drawing(
        WIDTH,
        420,
        title="After an election the logs agree again, and nothing committed is lost",
        description="Four moments of three logs: in sync, a leader cut off, another elected, and the first one back.",
    )
    across, down = 420, ROW * 3 + 62
    for at, (moment, caption) in enumerate(moments):
        x, y = 20 + across * (at % 2), 62 + down * (at // 2)
        panel(draw, x, y, moment, caption=caption, first=0, colours=colours)
        offsets(draw, x + 74, y + 14 + ROW * 3 + 8, range(end))
    y = 62 + down * 2
    for at, (epoch, colour) in enumerate(colours.items()):
        draw.rectangle(20 + 190 * at, y - 14, CELL - 2, CELL - 8, kind=f"{colour}-pale", rounded=3)
        draw.text(56 + 190 * at, y + 2, f"written in leader epoch {epoch}", kind="small")
    x = 20 + 190 * len(colours)
    draw.line(x + 6, y - 14, x + 6, y + 8, kind="watermark")
    draw.text(x + 16, y + 2, "high watermark, as each node knows it", kind="small")
    return draw.render()


def _send(shown: Stage, producer: Lane, size: int) -> None:
    """And let the news get around."""
    for _ in range(size):
        shown.do(producer.send(1))
    shown.passes(0.5)


def _leads(machine: Machine, shown: Stage) -> bool:
    return shown.recording.moments[-1].replicas[machine.id].leads


def _all_alike(moment: Moment) -> bool:
    return len({(each.end, each.high_watermark) for each in moment.replicas.values()}) == 1


def _offsets_drawing(
    recording: Recording, begin: float, end: float, *, height: int, title: str, description: str, bottom: float = 0
) -> tuple[Drawing, Plot]:
    draw = Drawing(WIDTH, height, title=title, description=description)
    inside = recording.between(begin, end)
    low = min(each.high_watermark for moment in inside for each in moment.replicas.values())
    high = max(each.end for moment in inside for each in moment.replicas.values())
    return draw, Plot(draw, top=96, right=640, bottom=bottom or height - 52, begin=begin, end=end, low=low, high=high)


def _log_ends(plot: Plot, recording: Recording, begin: float, end: float, leader: int) -> None:
    """The watermark below, so that logs are seen to reach it."""
    moments = recording.between(begin, end)
    watermark = changes([(moment.at, moment.replicas[leader].high_watermark) for moment in moments])
    plot.steps(watermark, kind="dashed ink-line")
    for at, node in enumerate(sorted(recording.at(begin).replicas)):
        points = changes([(moment.at, moment.replicas[node].end) for moment in moments])
        plot.steps(points, kind=f"{COLOURS[at]}-line", shift=3.0 * (at - 1))


def _replica_legend(drawing: Drawing, moment: Moment, leader: int) -> None:
    entries = [
        (f"log end, node {node}{' (leads)' if node == leader else ''}", f"{COLOURS[at]}-line")
        for at, node in enumerate(sorted(moment.replicas))
    ]
    legend(drawing, 660, 120, [*entries, ("high watermark of the leader", "dashed ink-line")])
