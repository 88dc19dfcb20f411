"""Bars for people who wait: on a terminal, and nowhere else."""

from __future__ import annotations

import io
import threading
import time
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from ottla.admin import offsets, reassignment
from ottla.admin.offsets import Bounds
from ottla.admin.reassignment import MoveProgress, OngoingMove
from ottla.cli import output
from ottla.cli.commands import cluster, consume, produce
from ottla.cli.output import Output
from ottla.cli.session import open_session
from ottla.client.blocking import BlockingClient, PartitionInfo, TopicInfo
from ottla.model import TopicPartition, Uuid


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def read(files: list[Path], told: io.StringIO, *, as_json: bool = False) -> list[bytes]:
    with redirect_stderr(told), produce._progress(open_session(as_json=as_json), files) as advance:
        return list(produce._pieces(files, b"\n", False, advance))


def test_files_that_are_read_have_a_bar(terminal: Terminal, tmp_path: Path) -> None:
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_bytes(b"a line\n" * 100_000)
    assert len(read(files, terminal)) == 200_000
    assert "1.4/1.4 MB" in terminal.getvalue()


def test_who_is_no_person_sees_none(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"a line\n")
    elsewhere = io.StringIO()
    read([file], terminal, as_json=True)
    read([file], elsewhere)
    assert (terminal.getvalue(), elsewhere.getvalue()) == ("", "")


def test_who_waits_is_told_for_what_and_who_does_not_is_told_nothing(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redirect_stderr(terminal):
        with Output(as_json=False).waiting("never said"):
            pass
        monkeypatch.setattr(output, "_MOMENT_S", 0.0)
        with Output(as_json=True).waiting("not for programs"):
            pass
        told = threading.Event()

        def note(self: Output, text: str) -> None:
            print(text, file=terminal)
            told.set()

        monkeypatch.setattr(Output, "note", note)
        with Output(as_json=False).waiting("the controller is waited for"):
            assert told.wait(60)
    assert terminal.getvalue() == "the controller is waited for\n"


def test_who_reads_where_a_leader_is_dead_is_told(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    place = TopicPartition("orders", 0)

    def slow(client: BlockingClient, partitions: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
        deadline_s = time.monotonic() + 60
        while not terminal.getvalue() and time.monotonic() < deadline_s:
            time.sleep(0.01)
        return {each: Bounds(start=0, end=5) for each in partitions}

    monkeypatch.setattr(output, "_MOMENT_S", 0.01)
    monkeypatch.setattr(offsets, "bounds_of", slow)
    known = TopicInfo("orders", Uuid(bytes(16)), {0: PartitionInfo(1, 0)})
    monkeypatch.setattr(BlockingClient, "topic", lambda client, name: known)
    with redirect_stderr(terminal):
        assert consume._starts(open_session(), ["orders"], None, "end") == {place: 5}
    assert terminal.getvalue() == "Not every leader answers; they are waited for, a minute at most …\n"


def test_replicas_that_move_have_a_bar_that_does_not_go_back(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = [
        OngoingMove(topic="orders", partition=each, replicas=(1, 2), adding=(2,), removing=(1,)) for each in range(2)
    ]
    looks = iter([moves, moves[:1], []])
    copied = iter([(100, 400), (300,)])
    monkeypatch.setattr(reassignment, "list_moves", lambda client: next(looks))
    monkeypatch.setattr(
        reassignment,
        "progress_of",
        lambda client, left: [
            MoveProgress(move=move, copied_bytes=done, total_bytes=500)
            for move, done in zip(left, next(copied), strict=True)
        ],
    )
    shown: list[str] = []
    monkeypatch.setattr("time.sleep", lambda _: shown.append(terminal.getvalue()))
    session = open_session()
    with redirect_stderr(terminal), BlockingClient(session.settings) as client:
        cluster._watch(session, client, {("orders", 0), ("orders", 1)})
    # Rich draws ten times a second, and once more at the end: what it shows last is the last that was told.
    assert len(shown) == 2
    assert "1 partition " in terminal.getvalue()
    assert "0.8/1.0 kB" in terminal.getvalue() or "800/1,000 bytes" in terminal.getvalue()
