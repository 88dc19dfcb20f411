"""The replication picture: every replica's log as a bar, drawn to one scale of offsets. Pure: a state in, SVG out.

A bar ends at the replica's log end. What is committed, which is below the high watermark that the replica knows of, is
filled; what is not yet, is hatched. Leader epochs are told apart by shade and named where they begin. The dashed line
is the leader's high watermark. The window shows the end of the log, wide enough that whoever is behind can be seen.

Widths are in per cent and heights in pixels, so that one drawing fits a telephone and a wall. Elements have keys: the
page moves those that it knows (`assets/console.js`) instead of drawing them anew, so that bars grow.
"""

from __future__ import annotations

from itertools import pairwise

from ottla.console.markup import Child, Markup, join, tag
from ottla.console.replication import PartitionState, ReplicaState
from ottla.console.units import count, duration

SPAN_MIN = 32
"""Offsets across the picture, at least."""
CELLS_SPAN_MAX = 128
"""Up to so many offsets each record is a cell of its own."""
BEFORE_SHARE = 0.94
"""Where the furthest log end stands: some room is left for what comes."""
_TOP = 44
_ROW = 74
_BAR_AT = 26
_BAR = 26
_AXIS = 34
TICKS_MAX = 8


class Window:
    """Which offsets are shown, and where."""

    def __init__(self, state: PartitionState) -> None:
        ends = [each.log_end for each in state.replicas if each.log_end is not None]
        starts = [each.log_start for each in state.replicas if each.log_start is not None]
        self.last = max(ends, default=0)
        behind = min([*ends, *([state.high_watermark] if state.high_watermark is not None else [])], default=0)
        wanted = max(SPAN_MIN, 2 * (self.last - behind))
        span = SPAN_MIN
        while span < wanted:
            span *= 2
        self.first = max(self.last - span, 0)
        if starts and self.last - min(starts) < span:
            self.first = min(starts)
        self.span = max(span, 1)

    def at(self, offset: int) -> float:
        """Where `offset` begins, in per cent; what is before the window is at its edge."""
        return max(0.0, min(100.0, (offset - self.first) / self.span * BEFORE_SHARE * 100))

    def ticks(self) -> list[int]:
        steps = (digit * 10**power for power in range(19) for digit in (1, 2, 5))
        step = next(each for each in steps if each * TICKS_MAX >= self.span)
        begin = -(-self.first // step) * step
        return list(range(begin, self.first + self.span + 1, step))


def picture(state: PartitionState) -> Markup:
    window = Window(state)
    height = _TOP + _ROW * len(state.replicas) + _AXIS
    bottom = height - _AXIS
    return tag(
        "svg",
        tag(
            "defs",
            tag(
                "pattern",
                tag("path", d="M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4", class_="hatch-line"),
                id="hatch",
                width="8",
                height="8",
                patternUnits="userSpaceOnUse",
            ),
        ),
        _axis(window, bottom),
        [_bar(each, state, window, _TOP + _ROW * at) for at, each in enumerate(state.replicas)],
        _watermark(state, window, bottom),
        [_words(each, state, _TOP + _ROW * at) for at, each in enumerate(state.replicas)],
        class_="replication",
        role="img",
        aria_label=describe(state),
        width="100%",
        height=height,
    )


def describe(state: PartitionState) -> str:
    """The picture in words, for who cannot see it."""
    words = [f"Partition {state.partition} of {state.topic}, leader epoch {state.leader_epoch}."]
    words.append("It has no leader." if state.leader is None else f"Node {state.leader} leads.")
    if state.high_watermark is not None:
        words.append(f"The high watermark is {state.high_watermark}.")
    for each in state.replicas:
        words.append(f"Node {each.node_id}: {standing(each, state)}, log end {count(each.log_end)}.")
    return " ".join(words)


def standing(replica: ReplicaState, state: PartitionState) -> str:
    """What it is to the partition, in a word or two."""
    sync = "in sync" if replica.in_sync else "out of sync"
    if not replica.answers:
        return f"does not answer, {sync}"
    if replica.role == "offline":
        return "its disk failed"
    if replica.node_id == state.leader:
        return f"leader, {sync}"
    return f"{'follower' if replica.role == 'follower' else replica.role}, {sync}"


def _axis(window: Window, bottom: int) -> Child:
    ticks: list[Child] = []
    for offset in window.ticks():
        x = f"{window.at(offset):.3f}%"
        ticks.append(tag("line", x1=x, x2=x, y1=_TOP - 6, y2=bottom, class_="tick", data_key=f"line-{offset}"))
        anchor = "start" if window.at(offset) < 1.5 else "middle"
        ticks.append(
            tag(
                "text",
                count(offset),
                x=x,
                y=bottom + 18,
                text_anchor=anchor,
                class_="tick-label",
                data_key=f"label-{offset}",
            )
        )
    return ticks


def _kind(replica: ReplicaState, state: PartitionState) -> str:
    """The classes by which the style sheet tells replicas apart."""
    if not replica.answers or replica.role == "offline":
        return "gone"
    leads = " leads" if replica.node_id == state.leader else ""
    return ("in-sync" if replica.in_sync else "behind") + leads


def _words(replica: ReplicaState, state: PartitionState, y: int) -> Markup:
    kind = _kind(replica, state)
    mark = {"gone": "✕", "in-sync": "●", "behind": "○"}[kind.partition(" ")[0]]
    return tag(
        "g",
        tag(
            "text",
            tag("tspan", mark, class_="mark"),
            tag("tspan", f"Node {replica.node_id}", class_="node", dx="6"),
            tag("tspan", standing(replica, state), class_="standing", dx="8"),
            x="0",
            y=y + 16,
            data_key="name",
        ),
        tag("text", _end_text(replica, state), x="100%", y=y + 16, text_anchor="end", class_="end", data_key="end"),
        class_=f"words {kind}",
        data_key=f"words-{replica.node_id}",
    )


def _end_text(replica: ReplicaState, state: PartitionState) -> str:
    if replica.log_end is None:
        return "nothing is known of its log"
    end = f"log end {count(replica.log_end)}"
    if not replica.answers:
        return f"was at {end}"
    leading = state.leading
    if leading is None or leading.log_end is None or replica.node_id == state.leader:
        return end
    lag = max(0, leading.log_end - replica.log_end)
    late = replica.caught_up_ms_ago
    if replica.in_sync or lag == 0:
        return f"{end}, {count(lag, 'record')} behind"
    return f"{end}, {count(lag, 'record')} behind" + (f" for {duration(late)}" if late is not None else "")


def _bar(replica: ReplicaState, state: PartitionState, window: Window, y: int) -> Markup:
    y += _BAR_AT
    return tag(
        "g",
        tag("rect", x="0", y=y, width="100%", height=_BAR, rx="5", class_="trough", data_key="trough"),
        _log(replica, window, y),
        class_=f"replica {_kind(replica, state)}",
        data_key=f"replica-{replica.node_id}",
    )


def _log(replica: ReplicaState, window: Window, y: int) -> Child:
    if replica.log_end is None or replica.log_start is None:
        return None
    begin, end = max(replica.log_start, window.first), replica.log_end
    known = replica.high_watermark if replica.high_watermark is not None else begin
    committed = max(begin, min(known, end))
    at_end = f"{window.at(end):.3f}%"
    cells: list[Child] = []
    if window.span <= CELLS_SPAN_MAX:
        for offset in range(begin + 1, end):
            x = f"{window.at(offset):.3f}%"
            cells.append(tag("line", x1=x, x2=x, y1=y + 1, y2=y + _BAR - 1, class_="cell", data_key=f"cell-{offset}"))
    return [
        _span("committed", window, y, begin, committed),
        _span("uncommitted", window, y, committed, end, fill="url(#hatch)"),
        cells,
        _epochs(replica, window, y, begin, end),
        tag("line", x1=at_end, x2=at_end, y1=y - 4, y2=y + _BAR + 4, class_="log-end", data_key="log-end"),
    ]


def _span(kind: str, window: Window, y: int, begin: int, end: int, fill: str | None = None) -> Markup:
    left, right = window.at(begin), window.at(end)
    return tag(
        "rect",
        x=f"{left:.3f}%",
        width=f"{max(0.0, right - left):.3f}%",
        y=y,
        height=_BAR,
        rx="4",
        class_=kind,
        fill=fill,
        data_key=kind,
    )


def _epochs(replica: ReplicaState, window: Window, y: int, begin: int, end: int) -> Child:
    parts: list[Child] = []
    bounds = [*replica.epochs, (-1, end)]
    taken = -100.0
    for (epoch, start), (_, stop) in pairwise(bounds):
        first, last = max(start, begin), min(stop, end)
        if first >= last and not (stop == end and start == end):
            continue
        left, right = window.at(first), window.at(last)
        if epoch % 2:
            parts.append(
                tag(
                    "rect",
                    x=f"{left:.3f}%",
                    width=f"{max(0.0, right - left):.3f}%",
                    y=y,
                    height=_BAR,
                    class_="epoch-shade",
                    data_key=f"shade-{epoch}",
                )
            )
        if left - taken >= 9 and right > left:
            taken = left
            parts.append(
                tag(
                    "text",
                    f"epoch {epoch}",
                    x=f"{left:.3f}%",
                    dx="6",
                    y=y + 17,
                    class_="epoch",
                    data_key=f"epoch-{epoch}",
                )
            )
    return parts


def _watermark(state: PartitionState, window: Window, bottom: int) -> Child:
    if state.high_watermark is None:
        return None
    place = window.at(state.high_watermark)
    x = f"{place:.3f}%"
    return tag(
        "g",
        tag("line", x1=x, x2=x, y1=_TOP - 14, y2=bottom, class_="watermark", data_key="watermark"),
        tag(
            "text",
            f"high watermark {count(state.high_watermark)}",
            x=x,
            y=_TOP - 22,
            text_anchor="end" if place > 30 else "start",
            class_="watermark-label",
            data_key="watermark-label",
        ),
        data_key="watermark-group",
    )


def legend() -> Markup:
    def entry(kind: str, text: str) -> Markup:
        return tag("li", tag("span", class_=f"swatch {kind}", aria_hidden="true"), text)

    return tag(
        "ul",
        entry("committed", "committed: below the high watermark"),
        entry("uncommitted", "appended, and not known there to be committed"),
        entry("watermark", "high watermark: how far consumers see"),
        entry("log-end", "log end of a replica"),
        class_="legend",
    )


def numbers(state: PartitionState) -> Markup:
    """The same as a table."""
    from ottla.console.units import size

    heads = ("node", "standing", "log start", "high watermark", "log end", "behind leader", "leader epoch", "size")
    headings = [tag("th", head, scope="col", class_="number" if at > 1 else None) for at, head in enumerate(heads)]
    leading = state.leading
    rows = []
    for each in state.replicas:
        behind = None
        if leading is not None and leading.log_end is not None and each.log_end is not None and each.answers:
            behind = max(0, leading.log_end - each.log_end)
        rows.append(
            tag(
                "tr",
                tag("th", f"Node {each.node_id}", scope="row"),
                tag("td", standing(each, state)),
                [
                    tag("td", text, class_="number")
                    for text in (
                        count(each.log_start),
                        count(each.high_watermark),
                        count(each.log_end),
                        count(behind, "record"),
                        count(each.leader_epoch),
                        size(each.size_bytes),
                    )
                ],
                data_key=f"node-{each.node_id}",
            )
        )
    return tag(
        "div",
        tag(
            "table",
            tag("thead", tag("tr", headings)),
            tag("tbody", rows),
        ),
        class_="table-box",
    )


def panel(state: PartitionState) -> Markup:
    """All of it: the facts of the partition, the picture, what its marks mean, and the numbers."""
    isr = ", ".join(map(str, state.isr)) or "nobody"
    wanted = "" if state.min_isr is None else f" (at least {state.min_isr} for acks=all)"
    facts = [
        ("Leader", "none" if state.leader is None else f"Node {state.leader}"),
        ("Leader epoch", count(state.leader_epoch)),
        ("In sync", f"{count(len(state.isr))} of {count(len(state.replicas), 'replica')}: {isr}{wanted}"),
        ("High watermark", f"offset {count(state.high_watermark)}"),
    ]
    return join(
        tag("dl", [tag("div", tag("dt", name), tag("dd", text)) for name, text in facts], class_="facts"),
        picture(state),
        legend(),
        numbers(state),
    )
