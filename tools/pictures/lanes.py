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
    lines = []
    for each in sent:
        down = lanes[each.target] > lanes[each.source]
        y1 = lanes[each.source] + (LANE if down else 0)
        y2 = lanes[each.target] + (0 if down else LANE)
        lines.append(Line(plot.x(each.sent), y1, plot.x(each.arrives), y2))
        drawing.arrow(*lines[-1], kind=f"{each.kind} answer" if each.answer else each.kind)
    taken: list[Box] = []
    for each, line in zip(sent, lines, strict=True):
        if each.words:
            box = room_for(each.words, line, lines, taken)
            taken.append(box)
            drawing.text(box.left, box.bottom - 2, each.words, kind="small")


class Line(NamedTuple):
    x1: float
    y1: float
    x2: float
    y2: float

    def at(self, share: float) -> tuple[float, float]:
        return self.x1 + share * (self.x2 - self.x1), self.y1 + share * (self.y2 - self.y1)


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def crossed_by(self, line: Line) -> bool:
        points = (line.at(step / 40) for step in range(41))
        return any(self.left <= x <= self.right and self.top <= y <= self.bottom for x, y in points)


def room_for(words: str, line: Line, lines: Sequence[Line], taken: Sequence[Box]) -> Box:
    """A place beside `line` for what is said along it: over no other words, and as few lines as can be."""

    def cost(box: Box) -> int:
        return 100 * sum(map(box.overlaps, taken)) + sum(map(box.crossed_by, lines))

    width, height = 6.0 * len(words), 12.0
    places = []
    for share in (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8):
        x, y = line.at(share)
        # To the right of it, then to the left; more to that side where it leans.
        for left in (x + 7, x + 13, x - 7 - width, x - 13 - width):
            places.append(Box(left, y - height / 2, left + width, y + height / 2))
    return min(places, key=cost)
