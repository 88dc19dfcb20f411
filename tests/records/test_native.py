"""The compiled side and the Python side give the same verdict on any bytes."""

from __future__ import annotations

import struct
from random import Random
from types import ModuleType

import pytest

from ottla.errors import KafkaError
from ottla.records import BatchBuilder, BatchHeader, ValidationRules, _pure, validate
from ottla.records.batch import HEADER_SIZE
from ottla.records.varint import encode_varint

from .crafting import NATIVE, NOW, seal

pytestmark = pytest.mark.skipif(NATIVE is None, reason="the module is not compiled")

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


def native() -> ModuleType:
    assert NATIVE is not None
    return NATIVE


def some_batch(random: Random) -> bytearray:
    """A good batch of one of the shapes that producers send: uniform or mixed, with and without keys and headers."""
    builder = BatchBuilder(
        producer_id=random.choice((-1, -1, 4)), producer_epoch=0, base_sequence=0, transactional=random.random() < 0.2
    )
    count = random.choice((1, 2, 5, 20, 60, 70, 150, 400))
    variety = random.choice(("none", "none", "values", "values", "all"))
    key_size = random.choice((None, 0, 3, 70))
    value_size = random.choice((None, 0, 1, 20, 60, 90, 200))
    step = random.choice((0, 0, 1, 1, 40, 5000, -1, 10**12))
    headers: list[tuple[str, bytes | None]] = [("name", b"content")] if random.random() < 0.25 else []
    timestamp = random.choice((NOW, NOW, NOW, 0, -1, NOW + 10**10))
    for index in range(count):
        if variety == "values":
            value_size = random.randrange(30, 130)
        elif variety == "all":
            key_size = random.choice((None, 0, 3, 70))
            value_size = random.choice((None, 0, 1, 20, 60, 90, 200, 1000))
            headers = [("n", None)] * random.choice((0, 0, 0, 1, 3))
        key = None if key_size is None else random.randbytes(key_size)
        value = None if value_size is None else random.randbytes(value_size)
        jitter = random.randrange(3) if random.random() < 0.3 else 0
        builder.append(timestamp + step * index + jitter, key, value, headers)
    return builder.build()


INTERESTING = [encode_varint(value) for value in (0, -1, 1, -2, 63, 64, 8191, 8192, 2**31 - 1, -(2**31), 2**62)]
INTERESTING += [b"\x80", b"\xff" * 5, b"\xff" * 10, b"\x80\x00", b"\x80\x80\x80\x80\x00", b"\x00", b"\x01", b"\x02"]


def mutate(random: Random, batch: bytearray) -> bytearray:
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        # Half of the blows fall on the header or the first records, where the structure is dense.
        reach = len(batch) if random.random() < 0.5 else min(len(batch), 140)
        at = random.randrange(reach) if reach else 0
        match random.randrange(7):
            case 0:
                batch[at : at + 1] = bytes((random.randrange(256),))
            case 1:
                batch[at : at + 1] = bytes((batch[at] ^ 1 << random.randrange(8),)) if at < len(batch) else b""
            case 2:
                wanted = random.choice(INTERESTING)
                batch[at : at + len(wanted)] = wanted
            case 3:
                batch[at:at] = random.choice(INTERESTING)
            case 4:
                del batch[at : at + random.randrange(1, 20)]
            case 5:
                del batch[len(batch) - random.randrange(min(len(batch), 30) + 1) :]
            case 6 if len(batch) >= 61:
                count = struct.unpack_from(">i", batch, 57)[0]
                count = max(
                    -(2**31), min(2**31 - 1, random.choice((count + 1, count - 1, 0, -1, 2**31 - 1, count * 2)))
                )
                struct.pack_into(">i", batch, 57, count)
                struct.pack_into(">i", batch, 23, max(-(2**31), count - 1))
            case _:
                batch += random.randbytes(random.randrange(10))
    if len(batch) >= 61 and random.random() < 0.9:
        seal(batch)
    return batch


def compare(seed: int, count: int) -> tuple[int, int]:
    """Hold both sides against each other on `count` batches; returns how many passed and how many were refused."""
    passed = refused = 0
    random = Random(seed)
    bounds = [(NOW - 10**6, NOW + 10**6), (LONG_MIN, LONG_MAX), (NOW - 2**63, NOW + 2**63), (NOW + 20, NOW + 60)]
    for number in range(count):
        if number % 6 == 0:
            good = some_batch(random)
        batch = mutate(random, bytearray(good))
        oldest, newest = random.choice(bounds)
        need_keys = random.random() < 0.5
        where = f"seed {seed}, batch {number}: {bytes(batch).hex()}"
        ours = _pure.check(BatchHeader, batch, oldest, newest, need_keys)
        theirs = native().check(BatchHeader, batch, oldest, newest, need_keys)
        assert ours == theirs, where
        if len(batch) < 61:
            refused += 1
            continue
        header = _pure.parse_header(BatchHeader, batch, 0)
        assert native().parse_header(BatchHeader, batch, 0) == header, where
        assert native().crc_matches(batch, 0, len(batch)) == _pure.crc_matches(batch, 0, len(batch)), where
        fixed = random.choice((None, None, None, NOW, -1, header.max_timestamp))
        if header.record_count >= 0:
            arguments = (batch[61:], header.record_count, header.base_timestamp, fixed, oldest, newest, need_keys)
            assert native().walk(*arguments) == _pure.walk(*arguments), where
        if ours is None:
            refused += 1
        else:
            passed += 1
            confirm(batch, ours, oldest, newest, need_keys, where)
    return passed, refused


def confirm(batch: bytearray, header: BatchHeader, oldest: int, newest: int, need_keys: bool, where: str) -> None:
    """What the short way lets through, the long way does too, and changes nothing."""
    rules = ValidationRules(
        compacted=need_keys, timestamp_before_max_ms=NOW - oldest, timestamp_after_max_ms=newest - NOW
    )
    try:
        validated = validate.validate_closely(memoryview(bytes(batch)), rules, NOW, True)
    except KafkaError as error:
        raise AssertionError(f"{error}: {where}") from error
    assert validated.batch == batch, where
    assert validated.header == header, where


@pytest.mark.slow
def test_both_sides_agree_on_some_mutated_batches() -> None:
    passed, refused = compare(seed=1, count=6_000)
    assert passed > 300
    assert refused > 300


@pytest.mark.slow
def test_both_sides_agree_on_17_000_mutated_batches() -> None:
    compare(10, 17_000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12, 28))
def test_both_sides_agree_on_272_000_more(seed: int) -> None:
    compare(seed, 17_000)


def test_both_sides_agree_at_every_cut_of_a_batch() -> None:
    random = Random(5)
    for _ in range(12):
        batch = some_batch(random)[:1500]
        for size in range(len(batch)):
            cut = batch[:size]
            if size >= 61:
                seal(cut)
                arguments = (cut[61:], 500, NOW, None, LONG_MIN, LONG_MAX, False)
                assert native().walk(*arguments) == _pure.walk(*arguments)
            checked = native().check(BatchHeader, cut, LONG_MIN, LONG_MAX, False)
            assert checked == _pure.check(BatchHeader, cut, LONG_MIN, LONG_MAX, False)


def test_both_sides_agree_on_batches_with_very_many_records() -> None:
    """Offset deltas take a third byte from 8,192 on."""
    for size in (0, 10):
        builder = BatchBuilder()
        for index in range(9_000):
            builder.append(NOW + index // 100, None, bytes(size))
        batch = builder.build()
        checked = native().check(BatchHeader, batch, LONG_MIN, LONG_MAX, False)
        assert checked is not None
        assert checked == _pure.check(BatchHeader, batch, LONG_MIN, LONG_MAX, False)


def test_both_sides_agree_on_large_batches_one_after_another() -> None:
    """The walk in Python keeps the memory of a large batch for the next: nothing of one shows in another."""
    for size, count in ((1_000, 1_000), (999, 300), (1_000, 1_000), (10, 20), (5_000, 100), (1_000, 140)):
        builder = BatchBuilder()
        for index in range(count):
            builder.append(NOW + index // 100, None, bytes(size))
        batch = bytearray(builder.build())
        wanted = native().check(BatchHeader, batch, LONG_MIN, LONG_MAX, False)
        assert wanted is not None
        assert _pure.check(BatchHeader, batch, LONG_MIN, LONG_MAX, False) == wanted
        body = memoryview(batch)[HEADER_SIZE:]
        for cut in (1, size, len(body) // 2):
            arguments = (body[:-cut], count, NOW, None, LONG_MIN, LONG_MAX, False)
            assert _pure.walk(*arguments) == native().walk(*arguments)


@pytest.mark.parametrize("name", ["check", "crc32c", "crc_matches", "parse_header", "walk"])
def test_wrong_arguments_are_type_errors_and_not_worse(name: str) -> None:
    function = getattr(native(), name)
    for arguments in ((), (1,), (None,) * 3, (None,) * 5, (None,) * 7, (b"", b"", b""), (int, b"x" * 99, 0)):
        with pytest.raises(TypeError):
            function(*arguments)
    with pytest.raises(ValueError, match="record count"):
        native().walk(b"", -1, 0, None, 0, 0, False)
    with pytest.raises(ValueError, match="record count"):
        native().walk(b"", 2**31, 0, None, 0, 0, False)


def test_objects_are_not_leaked() -> None:
    """The reference counts of what comes and goes are the same after many calls."""
    import sys

    builder = BatchBuilder()
    builder.append(NOW, None, b"v")
    batch = bytes(builder.build())
    for _ in range(10):
        native().walk(batch[61:], 1, NOW, None, 0, 0, True)
    held = sys.getrefcount(batch), sys.getrefcount(BatchHeader), sys.getrefcount(None)
    for _ in range(1000):
        assert native().check(BatchHeader, batch, LONG_MIN, LONG_MAX, False) is not None
        assert native().check(BatchHeader, batch, LONG_MIN, LONG_MAX, True) is None
        native().parse_header(BatchHeader, batch, 0)
        assert len(native().walk(batch[61:], 1, NOW, None, 0, 0, True)[4]) == 1
        native().crc_matches(batch, 0, len(batch))
    after = sys.getrefcount(batch), sys.getrefcount(BatchHeader), sys.getrefcount(None)
    assert all(abs(now - then) < 50 for now, then in zip(after, held, strict=True))
