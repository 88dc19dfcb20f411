"""Offsets over time: how far each replica's log reaches, and what of it is committed."""

from __future__ import annotations

from collections.abc import Sequence

from tools.pictures.svg import Drawing

TICKS_MAX = 8

Points = Sequence[tuple[float, int | None]]
"""(when, the value from then on), in order; None where there is nothing to show."""


class Plot:
    """A part of a drawing with time to the right and offsets upwards."""

    def __init__(
        self,
        drawing: Drawing,
        *,
        left: float = 56,
        top: float,
        right: float,
        bottom: float,
        begin: float,
        end: float,
        low: int,
        high: int,
    ) -> None:
        self._drawing = drawing
        self.left, self.top, self.right, self.bottom = left, top, right, bottom
        self.begin, self.end = begin, end
        self._low, self._high = low, high

    def x(self, when: float) -> float:
        share = (when - self.begin) / (self.end - self.begin)
        return self.left + min(1.0, max(0.0, share)) * (self.right - self.left)

    def y(self, offset: float) -> float:
        return self.bottom - (offset - self._low) / max(1, self._high - self._low) * (self.bottom - self.top)

    def axes(self, *, zero: float, unit: str, offsets: bool = True) -> None:
        """Time is told since `zero`, in `unit` (s or ms)."""
        draw, scale = self._drawing, 1000 if unit == "ms" else 1
        step = _step((self.end - self.begin) * scale)
        tick = -(-(self.begin - zero) * scale // step) * step
        while tick <= (self.end - zero) * scale + 1e-9:
            x = self.x(zero + tick / scale)
            draw.line(x, self.top, x, self.bottom, kind="grid")
            draw.text(x, self.bottom + 18, f"{tick + 0.0:g}", kind="soft small", anchor="middle")
            tick += step
        draw.text(self.right, self.bottom + 34, f"time in {unit}", kind="soft small", anchor="end")
        draw.line(self.left, self.bottom, self.right, self.bottom, kind="axis")
        if offsets:
            height = int(_step(self._high - self._low))
            for offset in range(-(-self._low // height) * height, self._high + 1, height):
                draw.line(self.left, self.y(offset), self.right, self.y(offset), kind="grid")
                draw.text(self.left - 8, self.y(offset) + 4, str(offset), kind="soft small", anchor="end")
            draw.text(self.left - 40, self.top - 10, "offset", kind="soft small")

    def steps(self, points: Points, *, kind: str, shift: float = 0.0) -> None:
        """A line of stairs; `shift` keeps lines of the same value apart."""
        run: list[tuple[float, float]] = []
        for at, (when, value) in enumerate(points):
            until = points[at + 1][0] if at + 1 < len(points) else self.end
            if value is None:
                self._stroke(run, kind)
                run = []
            elif until >= self.begin and when <= self.end:
                y = self.y(value) + shift
                run += [(self.x(when), y), (self.x(until), y)]
        self._stroke(run, kind)

    def _stroke(self, run: list[tuple[float, float]], kind: str) -> None:
        if run:
            self._drawing.path(_without_repeats(run), kind=f"line {kind}")

    def moment(self, when: float, words: str, *, row: int = 0, anchor: str = "start") -> None:
        """Something that happened then."""
        draw, y = self._drawing, self.top - 12 - 16 * row
        draw.line(self.x(when), y - 10, self.x(when), self.bottom, kind="moment")
        draw.text(self.x(when) + (5 if anchor == "start" else -5), y, words, kind="small", anchor=anchor)


def legend(drawing: Drawing, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
    """(words, the kind of line that they are about), one below the other."""
    for at, (words, kind) in enumerate(entries):
        drawing.line(x, y + 22 * at, x + 26, y + 22 * at, kind=f"line {kind}")
        drawing.text(x + 34, y + 22 * at + 4, words, kind="small")


def changes(points: Sequence[tuple[float, int | None]]) -> list[tuple[float, int | None]]:
    """Without those that say the same as the one before."""
    return [point for at, point in enumerate(points) if at == 0 or point[1] != points[at - 1][1]]


def _step(span: float) -> float:
    steps = (digit * 10.0**power for power in range(-3, 9) for digit in (1, 2, 5))
    return next(step for step in steps if step * TICKS_MAX >= span)


def _without_repeats(run: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return [point for at, point in enumerate(run) if at == 0 or point != run[at - 1]]
