from ottla.wire.produce_codec import Opening

def find_opening(
    buffer: bytearray, start: int, end: int, size: int, known: list[dict[bytes, Opening]], /
) -> tuple[int, int, Opening, int, int] | None: ...
def pack_one(
    version: int,
    correlation_id: int,
    head: bytes,
    index: int,
    base_offset: int,
    append_time_ms: int,
    log_start_offset: int,
    /,
) -> bytes: ...
