"""Readers of cold files: who goes forward finds the next bytes there already, who jumps about costs nothing extra."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import pytest

from ottla.broker.fetching.read_ahead import FILES_MAX, WINDOW_BYTES, ReadAhead
from ottla.errors import ErrorCode
from ottla.runtime import DiskError, FileSpan
from ottla.runtime.disk import SystemDisk
from ottla.runtime.seams import File
from tests.seams.surroundings import InlineOffload

MIB = 1024 * 1024


class ColdFile:
    """Tells what was asked of the device."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.brought: list[tuple[int, int]] = []
        self.broken = False

    def size(self) -> int:
        return self._size

    def prefetch(self, position: int, size: int) -> None:
        if self.broken:
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "cannot read")
        self.brought.append((position, size))


def span(file: ColdFile, position: int, size: int = MIB) -> FileSpan:
    return FileSpan(file, position, size)  # type: ignore[arg-type]


def played(story: Callable[[ReadAhead], Awaitable[None]]) -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []

        def spawn(work: Coroutine[object, object, None]) -> None:
            tasks.append(asyncio.ensure_future(work))

        await story(ReadAhead(InlineOffload(), spawn))
        await asyncio.gather(*tasks)

    asyncio.run(main())


async def read(ahead: ReadAhead, at: FileSpan) -> None:
    await ahead.bring_in([at])
    ahead.follow(at)
    await asyncio.sleep(0.001)


def test_a_reader_who_goes_forward_has_a_window_read_ahead_of_him() -> None:
    file = ColdFile(64 * MIB)

    async def story(ahead: ReadAhead) -> None:
        await read(ahead, span(file, 0))
        assert file.brought == [(0, MIB)]
        await read(ahead, span(file, MIB))
        assert file.brought[1:] == [(MIB, MIB), (2 * MIB, WINDOW_BYTES)]

    played(story)


def test_the_next_window_comes_when_half_of_the_last_is_read() -> None:
    file = ColdFile(64 * MIB)

    async def story(ahead: ReadAhead) -> None:
        await read(ahead, span(file, 0))
        await read(ahead, span(file, MIB))
        file.brought.clear()
        position = 2 * MIB
        while not file.brought:
            ahead.follow(span(file, position))
            await asyncio.sleep(0.001)
            position += MIB
        assert file.brought == [(2 * MIB + WINDOW_BYTES, WINDOW_BYTES)]
        assert position == 2 * MIB + WINDOW_BYTES // 2

    played(story)


def test_a_reader_who_jumps_about_brings_in_what_he_asks_for_and_no_more() -> None:
    file = ColdFile(64 * MIB)

    async def story(ahead: ReadAhead) -> None:
        for position in (40, 3, 17, 9, 58):
            await read(ahead, span(file, position * MIB))
        assert file.brought == [(position * MIB, MIB) for position in (40, 3, 17, 9, 58)]
        assert ahead.is_idle

    played(story)


def test_reading_ahead_ends_with_the_file() -> None:
    file = ColdFile(3 * MIB)

    async def story(ahead: ReadAhead) -> None:
        await read(ahead, span(file, 0))
        await read(ahead, span(file, MIB))
        assert file.brought[-1] == (2 * MIB, MIB)
        assert ahead.is_idle

    played(story)


def test_a_disk_that_fails_ahead_of_the_reader_tells_only_who_asks_for_those_bytes() -> None:
    file = ColdFile(64 * MIB)

    async def story(ahead: ReadAhead) -> None:
        await read(ahead, span(file, 0))
        await ahead.bring_in([span(file, MIB)])
        file.broken = True
        ahead.follow(span(file, MIB))
        await asyncio.sleep(0.001)
        assert ahead.is_idle
        whole = ColdFile(MIB)
        assert list(await ahead.bring_in([span(file, 2 * MIB), span(whole, 0)])) == [span(file, 2 * MIB)]
        assert whole.brought == [(0, MIB)]

    played(story)


def test_only_so_many_files_are_remembered() -> None:
    files = [ColdFile(64 * MIB) for _ in range(FILES_MAX + 1)]

    async def story(ahead: ReadAhead) -> None:
        for file in files:
            await ahead.bring_in([span(file, 0)])
        await read(ahead, span(files[0], MIB))
        assert files[0].brought == [(0, MIB), (MIB, MIB)]
        await read(ahead, span(files[-1], MIB))
        assert files[-1].brought[-1] == (2 * MIB, WINDOW_BYTES)

    played(story)


@pytest.mark.parametrize("sends_to_files", [True, False])
def test_a_real_file_is_brought_in_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sends_to_files: bool
) -> None:
    monkeypatch.setattr("ottla.runtime.disk._SENDS_TO_FILES", sends_to_files)
    file: File = SystemDisk().open(f"{tmp_path}/f", create=True)
    file.write(0, b"x" * 1000)
    file.prefetch(0, 5000)
    assert file.cached(0, 1000)
    file.close()
    with pytest.raises(DiskError):
        file.prefetch(0, 1000)
