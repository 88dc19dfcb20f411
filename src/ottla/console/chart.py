"""Lines over time, as SVG that follows the page's colours. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ottla.console.history import Point
from ottla.console.markup import Child, Markup, tag
from ottla.console.units import clock

_WIDTH, _HEIGHT = 600, 150
_TOP, _BOTTOM = 8, 22
_LINES_MAX = 6
_POINTS_MAX = 300


EARLY = "Nothing is known yet: the first figures come after a few seconds."


def chart(
    title: str, series: Mapping[str, Sequence[Point]], unit: Callable[[float], str], *, empty: str = EARLY
) -> Markup:
    """`unit` says a value with its unit. Of many series the highest are drawn. `empty` says why there is none."""
    drawn = {name: _thinned(points) for name, points in series.items() if len(points) > 1}
    chosen = sorted(drawn, key=lambda name: drawn[name][-1].value, reverse=True)[:_LINES_MAX]
    if not chosen:
        body: Child = tag("p", empty, class_="empty")
        return tag("figure", tag("figcaption", title), body, class_="chart")
    times = [point.time_s for name in chosen for point in drawn[name]]
    first, last = min(times), max(times)
    top = max(point.value for name in chosen for point in drawn[name]) or 1.0
    lines = [_line(drawn[name], first, last, top, at) for at, name in enumerate(chosen)]
    left_out = len(drawn) - len(chosen)
    return tag(
        "figure",
        tag("figcaption", title),
        tag(
            "div",
            tag("span", unit(top), class_="chart-top"),
            tag(
                "svg",
                tag("path", d=f"M0,{_HEIGHT - _BOTTOM} H{_WIDTH}", class_="chart-base"),
                tag("path", d=f"M0,{_TOP} H{_WIDTH}", class_="chart-grid"),
                tag("path", d=f"M0,{(_TOP + _HEIGHT - _BOTTOM) // 2} H{_WIDTH}", class_="chart-grid"),
                lines,
                viewBox=f"0 0 {_WIDTH} {_HEIGHT - _BOTTOM + 2}",
                preserveAspectRatio="none",
                role="img",
                aria_label=f"{title}: now {', '.join(f'{name} {unit(drawn[name][-1].value)}' for name in chosen)}",
            ),
            tag("div", tag("span", clock(first)), tag("span", clock(last)), class_="chart-times"),
            class_="chart-box",
        ),
        tag(
            "ul",
            [
                tag(
                    "li",
                    tag("span", class_=f"swatch line-{at}", aria_hidden="true"),
                    f"{name} ",
                    tag("strong", unit(drawn[name][-1].value)),
                )
                for at, name in enumerate(chosen)
            ],
            tag("li", f"and {left_out} more, which are lower") if left_out else None,
            class_="legend",
        ),
        class_="chart",
    )


def _line(points: Sequence[Point], first: float, last: float, top: float, number: int) -> Markup:
    width = max(last - first, 1e-9)
    height = _HEIGHT - _TOP - _BOTTOM
    steps = [
        f"{(point.time_s - first) / width * _WIDTH:.1f},{_TOP + height * (1 - point.value / top):.1f}"
        for point in points
    ]
    return tag("path", d="M" + " L".join(steps), class_=f"chart-line line-{number}", data_key=f"line-{number}")


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    if len(points) <= _POINTS_MAX:
        return points
    step = -(-len(points) // _POINTS_MAX)
    return [*points[:-1:step], points[-1]]
