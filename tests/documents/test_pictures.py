"""The pictures of "How it works" show what the simulator's nodes did, and are drawn anew to the same line."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.pictures.__main__ import DIRECTORY
from tools.pictures.cells import colours_of
from tools.pictures.curves import Plot, changes
from tools.pictures.lanes import Span, spans
from tools.pictures.scenes import SCENES
from tools.pictures.scenes.replication import records_are_committed
from tools.pictures.stage import stage
from tools.pictures.svg import Drawing

SVG = "{http://www.w3.org/2000/svg}"
SIZE_MAX = 40_000


def test_every_scene_has_its_picture_and_every_picture_its_scene() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.svg")} == set(SCENES)


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_is_small_and_tells_itself_to_who_cannot_see_it(path: Path) -> None:
    assert path.stat().st_size < SIZE_MAX
    root = ElementTree.parse(path).getroot()
    for name in ("title", "desc"):
        said = root.find(f"{SVG}{name}")
        assert said is not None
        assert said.text
    assert "prefers-color-scheme:dark" in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_a_scene_can_still_be_played(name: str) -> None:
    """With all checkers at work. Times and ids may differ from those of the picture that is kept: nodes learn."""
    drawn, kept = ElementTree.fromstring(SCENES[name]()), ElementTree.parse(DIRECTORY / f"{name}.svg").getroot()
    assert drawn.findtext(f"{SVG}desc") == kept.findtext(f"{SVG}desc"), "run: make pictures"
    shapes = Counter(each.tag for each in drawn.iter())
    assert shapes[f"{SVG}text"] > 8
    assert sum(shapes[f"{SVG}{each}"] for each in ("rect", "path", "circle")) > 5


@pytest.mark.slow
def test_a_recording_has_what_the_nodes_had() -> None:
    with stage() as shown:
        before = shown.recording.moments[-1]
        assert [each.end for each in before.replicas.values()] == [0, 0, 0]
        shown.do(shown.producer(0).send(5))
        shown.passes(1.0)
        after = shown.recording.moments[-1]
        assert {(each.end, each.high_watermark) for each in after.replicas.values()} == {(5, 5)}
        assert [node for node, each in after.replicas.items() if each.leads] == [after.leader]
        # The leader has the records first, the watermark moves when all have them.
        moments = shown.recording.between(before.at, after.at)
        ends = [[moment.replicas[node].end for moment in moments] for node in after.replicas]
        first = min(range(3), key=lambda at: ends[at].index(5))
        assert list(after.replicas)[first] == after.leader
        moved = next(moment for moment in moments if moment.replicas[after.leader].high_watermark == 5)
        assert all(each.end == 5 for each in moved.replicas.values())
        follower = next(machine for machine in shown.cluster.brokers if machine.id != after.leader)
        follower.crash()
        shown.until(lambda: follower.id not in shown.recording.moments[-1].isr)
        gone = shown.recording.moments[-1].replicas[follower.id]
        assert (gone.running, gone.end) == (False, 5)


@pytest.mark.slow
def test_the_drawing_has_a_step_for_each_batch() -> None:
    root = ElementTree.fromstring(records_are_committed())
    lines = [each for each in root.iter(f"{SVG}path") if "line" in each.attrib.get("class", "")]
    stairs = [set(re.findall(r"[ML][\d.]+ ([\d.]+)", each.attrib["d"])) for each in lines]
    assert [len(heights) for heights in stairs] == [5, 5, 5, 5], "four batches of three replicas and the watermark"


def test_stairs_go_where_the_values_are() -> None:
    draw = Drawing(100, 100, title="t", description="d")
    plot = Plot(draw, left=0, top=0, right=100, bottom=100, begin=0, end=10, low=0, high=10)
    plot.steps([(0, 0), (5, 10), (7, None)], kind="one-line")
    assert 'd="M0 100 L50 100 L50 0 L70 0"' in draw.render()
    assert changes([(0, 1), (1, 1), (2, 3)]) == [(0, 1), (2, 3)]


def test_spans_are_joined_where_nothing_changed() -> None:
    states = [(0.0, ("a", "x")), (1.0, ("a", "x")), (2.0, None), (3.0, ("b", "x"))]
    assert spans(states, 4.0) == [Span(0.0, 2.0, "a", "x"), Span(3.0, 4.0, "b", "x")]
    assert colours_of([3, 0, 3]) == {0: "one", 3: "two"}


class Words(NamedTuple):
    words: str
    left: float
    right: float
    y: float


def words_of(picture: ElementTree.Element) -> list[Words]:
    """As wide as letters mostly are."""
    found = []
    for each in picture.iter(f"{SVG}text"):
        letter = {"title": 7.2}.get(each.get("class", ""), 5.2)
        width = letter * len(each.text or "")
        x = float(each.get("x", "0")) - {"middle": width / 2, "end": width}.get(each.get("text-anchor", ""), 0)
        found.append(Words(each.text or "", x, x + width, float(each.get("y", "0"))))
    return found


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.svg")), ids=lambda path: path.stem)
def test_no_words_stand_over_others(path: Path) -> None:
    words = words_of(ElementTree.parse(path).getroot())
    for one, other in combinations(words, 2):
        apart = one.right <= other.left or other.right <= one.left or abs(one.y - other.y) >= 9
        assert apart, f"{one.words!r} and {other.words!r}"
