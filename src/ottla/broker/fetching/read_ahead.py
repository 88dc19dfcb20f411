"""Brings the bytes of cold files into the page cache before they are sent, so that the loop never waits for a device.

A span that is not in the cache is brought in by a thread, and its fetch is answered then. A reader who asks for two
cold spans in a row reads on from there, most likely: what follows is brought in before it is asked for, window by
window, for as long as the reader keeps coming. A reader who jumps about causes no more reading than he asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence

from ottla.errors import KafkaError
from ottla.runtime import DiskError, File, FileSpan, Offload

WINDOW_BYTES = 8 * 1024 * 1024
"""Several fetches' worth: the device reads the next window while this one is being sent."""

FILES_MAX = 256
"""Cold files whose readers are followed; the one that was cold first is forgotten."""


class ReadAhead:
    """One instance a node. Files are told apart by identity; a log keeps those open that are read."""

    def __init__(self, offload: Offload, spawn: Callable[[Coroutine[object, object, None]], None]) -> None:
        self._offload = offload
        self._spawn = spawn
        self._ends: dict[File, int] = {}
        """Where the last cold span of each file ended."""
        self._ahead: dict[File, int] = {}
        """Up to where files with a steady reader have been, or are being, brought in."""

    async def bring_in(self, spans: Sequence[FileSpan]) -> dict[FileSpan, DiskError]:
        """Those that the disk refuses to read come back, each with the reason."""
        for file, position, size in spans:
            steady = self._ends.pop(file, -1) == position
            self._ends[file] = position + size
            if len(self._ends) > FILES_MAX:
                oldest = next(iter(self._ends))
                del self._ends[oldest]
                self._ahead.pop(oldest, None)
            if steady:
                self._ahead[file] = position + size

        def work() -> dict[FileSpan, DiskError]:
            failures: dict[FileSpan, DiskError] = {}
            for span in spans:
                try:
                    span.file.prefetch(span.position, span.size)
                except DiskError as error:
                    failures[span] = error
            return failures

        return await self._offload.run(work)

    def follow(self, span: FileSpan) -> None:
        """`span` is about to be sent: see to what comes after it, if its reader is steady."""
        file, position, size = span
        brought = self._ahead.get(file)
        if brought is None or position + size + WINDOW_BYTES // 2 < brought:
            return
        try:
            end = file.size()
        except KafkaError:
            end = 0
        left = end - brought
        if left > WINDOW_BYTES:
            self._ahead[file] = brought + WINDOW_BYTES
        else:
            del self._ahead[file]
        if left > 0:
            self._spawn(self._read(file, brought, min(left, WINDOW_BYTES)))

    async def _read(self, file: File, position: int, size: int) -> None:
        try:
            await self._offload.run(lambda: file.prefetch(position, size))
        except KafkaError:
            self._ahead.pop(file, None)  # Whoever asks for these bytes will be told.

    @property
    def is_idle(self) -> bool:
        return not self._ahead
