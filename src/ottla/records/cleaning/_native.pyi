from collections.abc import Set as AbstractSet

from ottla.records.batch import Buffer

SLOT_BYTES: int

class OffsetMap:
    entries: int
    latest_offset: int
    def __init__(self, slots: int, entries_max: int, secret: bytes) -> None: ...
    def add(self, body: Buffer, record_count: int, base_offset: int, from_offset: int) -> bool: ...
    def add_batches(self, chunk: Buffer, position: int, from_offset: int) -> tuple[int, bool]: ...
    def survivors(
        self,
        body: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        fixed_timestamp: int | None,
        has_horizon: bool,
        now_ms: int,
        new_horizon: int,
    ) -> tuple[int, int, int, bytes | None, bool]: ...
    def clean_batches(
        self, chunk: Buffer, position: int, now_ms: int, new_horizon: int, pinned: AbstractSet[int]
    ) -> tuple[int, bytes]: ...
