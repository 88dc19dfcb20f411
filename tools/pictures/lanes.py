"""Who was what, over time, one lane each; and the messages between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tools.pictures.curves import Plot
from tools.pictures.svg import Drawing

LANE = 26


class Span(NamedTuple):
    """From `begin` to `end` it was this."""

    begin: float
    end: float
    words: str
    kind: str


class Message(NamedTuple):
    sent: float
    arrives: float
    source: int
    target: int
    words: str
    kind: str
    answer: bool


def spans(states: Sequence[tuple[float, tuple[str, str] | None]], end: float) -> list[Span]:
    """Of (when, what and its kind from then on); None is nothing at all."""
    found: list[Span] = []
    for at, (when, state) in enumerate(states):
        until = states[at + 1][0] if at + 1 < len(states) else end
        if found and state is not None and (found[-1].words, found[-1].kind, found[-1].end) == (*state, when):
            found[-1] = found[-1]._replace(end=until)
        elif state is not None and until > when:
            found.append(Span(when, until, *state))
    return found


def lane(drawing: Drawing, plot: Plot, y: float, name: str, found: Sequence[Span], *, height: float = LANE) -> None:
    drawing.text(20, y + height / 2 + 4, name, kind="small bold")
    for span in found:
        x, width = plot.x(span.begin), plot.x(span.end) - plot.x(span.begin)
        if width <= 0:
            continue
        drawing.rectangle(x, y, width, height, kind=span.kind, rounded=3, says=span.words)
        if width > 7 * len(span.words) + 6:
            drawing.text(x + width / 2, y + height / 2 + 4, span.words, kind="small", anchor="middle")


def messages(drawing: Drawing, plot: Plot, lanes: dict[int, float], sent: Sequence[Message]) -> None:
    """Arrows from lane to lane; `lanes` says where each is. Answers are dashed."""
    for each in sent:
        down = lanes[each.target] > lanes[each.source]
        y1 = lanes[each.source] + (LANE if down else 0)
        y2 = lanes[each.target] + (0 if down else LANE)
        x1, x2 = plot.x(each.sent), plot.x(each.arrives)
        drawing.arrow(x1, y1, x2, y2, kind=f"{each.kind} answer" if each.answer else each.kind)
        if each.words:
            drawing.text((x1 + x2) / 2 + 6, (y1 + y2) / 2 + (4 if down else 12), each.words, kind="small")
