"""Logs as rows of cells, one a record: which node has which record, of which leader, and what is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tools.pictures.recording import Moment
from tools.pictures.svg import COLOURS, Drawing

CELL = 30
ROW = 34


class Cell(NamedTuple):
    words: str
    kind: str
    says: str = ""


def panel(
    drawing: Drawing, x: float, y: float, moment: Moment, *, caption: str, first: int, colours: dict[int, str]
) -> None:
    """All logs from the offset `first` on at one moment. `colours` are those of epochs; a bar ends what is committed,
    as each node knows it."""
    drawing.text(x, y, caption, kind="bold")
    for at, (node, replica) in enumerate(sorted(moment.replicas.items())):
        top = y + 14 + ROW * at
        leads = moment.leader == node
        drawing.text(x, top + 19, f"node {node}", kind="small bold" if leads else "small")
        drawing.text(x, top + 30, "leads" if leads else _standing(moment, node), kind="soft small")
        cells = [
            Cell(str(epoch), f"{colours[epoch]}-pale", f"offset {offset}, leader epoch {epoch}")
            for offset in range(first, replica.end)
            for epoch in [replica.epoch_of(offset)]
        ]
        row(drawing, x + 74, top, cells)
        edge = x + 74 + CELL * (replica.high_watermark - first)
        drawing.line(edge, top - 1, edge, top + CELL - 3, kind="watermark")


def row(drawing: Drawing, x: float, y: float, cells: Sequence[Cell], *, width: int = CELL) -> None:
    for at, cell in enumerate(cells):
        drawing.rectangle(x + width * at + 1, y, width - 2, CELL - 4, kind=cell.kind, rounded=3, says=cell.says or None)
        drawing.text(x + width * at + width / 2, y + 17, cell.words, kind="small", anchor="middle")


def offsets(drawing: Drawing, x: float, y: float, numbers: Sequence[int], *, width: int = CELL) -> None:
    """The numbers below (or above) a row of cells."""
    for at, number in enumerate(numbers):
        drawing.text(x + width * at + width / 2, y, str(number), kind="soft small", anchor="middle")


def colours_of(epochs: Sequence[int]) -> dict[int, str]:
    return {epoch: COLOURS[at % len(COLOURS)] for at, epoch in enumerate(sorted(set(epochs)))}


def _standing(moment: Moment, node: int) -> str:
    return "in sync" if node in moment.isr else "out of sync"
