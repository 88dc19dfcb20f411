"""A small drawing in SVG, legible on light paper and on dark: colours are classes, and the style sheet knows both."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_LIGHT = {
    "ground": "#ffffff",
    "edge": "#d8dee4",
    "ink": "#1f2933",
    "soft": "#5b6873",
    "grid": "#e6eaee",
    "one": "#0b6bcb",
    "two": "#c2410c",
    "three": "#0f7b4d",
    "four": "#8a3ffc",
    "one-pale": "#d6e8fb",
    "two-pale": "#fde3d3",
    "three-pale": "#d3f0e1",
    "four-pale": "#e8ddfd",
    "gone": "#eceff2",
    "alarm": "#b4232c",
}
_DARK = {
    "ground": "#161b22",
    "edge": "#333c47",
    "ink": "#e6edf3",
    "soft": "#9aa7b3",
    "grid": "#262e38",
    "one": "#6cb2ff",
    "two": "#ffa366",
    "three": "#5fd39b",
    "four": "#c3a1ff",
    "one-pale": "#173a5e",
    "two-pale": "#5a2f14",
    "three-pale": "#124a32",
    "four-pale": "#3b2a63",
    "gone": "#21272f",
    "alarm": "#ff7b80",
}

COLOURS = ("one", "two", "three", "four")
"""Of whatever is told apart, in this order."""


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


_STYLE = (
    f":root{{{_variables(_LIGHT)}}}"
    f"@media(prefers-color-scheme:dark){{:root{{{_variables(_DARK)}}}}}"
    "text{font:13px system-ui,sans-serif;fill:var(--ink)}"
    ".soft{fill:var(--soft)}.small{font-size:11px}.title{font-size:15px;font-weight:600}.bold{font-weight:600}"
    ".ground{fill:var(--ground);stroke:var(--edge)}.grid{stroke:var(--grid)}.axis{stroke:var(--soft)}"
    ".moment{stroke:var(--soft);stroke-dasharray:2 4}.line{fill:none;stroke-width:2.2;stroke-linejoin:round}"
    ".dashed{stroke-dasharray:7 4;stroke-width:3}.answer{stroke-dasharray:4 3}.arrow{stroke-width:1.6}"
    ".gone{fill:var(--gone);stroke:var(--edge)}.open{fill:none}.watermark{stroke:var(--ink);stroke-width:3}"
    ".ink-line{stroke:var(--ink)}.alarm{fill:var(--alarm)}.alarm-line{stroke:var(--alarm);stroke-width:2}"
    + "".join(
        f".{name}{{fill:var(--{name})}}.{name}-line{{stroke:var(--{name})}}"
        f".{name}-pale{{fill:var(--{name}-pale);stroke:var(--{name})}}"
        for name in COLOURS
    )
)


class Drawing:
    """Elements in the order in which they are painted."""

    def __init__(self, width: int, height: int, *, title: str, description: str) -> None:
        self.width = width
        self.height = height
        self._title = title
        self._description = description
        self._elements: list[str] = []
        self.rectangle(0.5, 0.5, width - 1, height - 1, kind="ground", rounded=8)
        self.text(20, 28, title, kind="title")

    def text(self, x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> None:
        self._add("text", words, x=x, y=y, kind=kind, text_anchor=None if anchor == "start" else anchor)

    def line(self, x1: float, y1: float, x2: float, y2: float, *, kind: str) -> None:
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, kind=kind)

    def rectangle(
        self, x: float, y: float, width: float, height: float, *, kind: str, rounded: float = 0, says: str | None = None
    ) -> None:
        """`says` is shown to whoever points at it."""
        self._add("rect", tip=says, x=x, y=y, width=width, height=height, rx=rounded or None, kind=kind)

    def dot(self, x: float, y: float, *, kind: str, radius: float = 4) -> None:
        self._add("circle", cx=x, cy=y, r=radius, kind=kind)

    def path(self, points: Iterable[tuple[float, float]], *, kind: str) -> None:
        steps = " ".join(f"{'L' if at else 'M'}{_number(x)} {_number(y)}" for at, (x, y) in enumerate(points))
        self._add("path", d=steps, kind=kind)

    def arrow(self, x1: float, y1: float, x2: float, y2: float, *, kind: str) -> None:
        """A line with a head at its end."""
        colour, _, rest = kind.partition(" ")
        self.line(x1, y1, x2, y2, kind=f"arrow {colour}-line {rest}".strip())
        length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 0.001)
        along, aside = ((x2 - x1) / length, (y2 - y1) / length), (-(y2 - y1) / length, (x2 - x1) / length)
        corners = [(x2 - 9 * along[0] + side * aside[0], y2 - 9 * along[1] + side * aside[1]) for side in (3.6, -3.6)]
        self.path([(x2, y2), *corners, (x2, y2)], kind=colour)

    def render(self) -> str:
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" role="img" aria-labelledby="t d">',
                f'<title id="t">{escape(self._title)}</title>',
                f'<desc id="d">{escape(self._description)}</desc>',
                f"<style>{_STYLE}</style>",
                *self._elements,
                "</svg>",
                "",
            ]
        )

    def _add(self, name: str, words: str | None = None, *, kind: str, tip: str | None = None, **places: object) -> None:
        attributes = "".join(
            f' {key.replace("_", "-")}="{_number(value) if isinstance(value, int | float) else escape(str(value))}"'
            for key, value in places.items()
            if value is not None
        )
        if kind:
            attributes += f' class="{kind}"'
        inside = escape(words, quote=False) if words is not None else ""
        if tip is not None:
            inside += f"<title>{escape(tip, quote=False)}</title>"
        self._elements.append(f"<{name}{attributes}>{inside}</{name}>" if inside else f"<{name}{attributes}/>")


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
