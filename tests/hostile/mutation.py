"""Spoils bytes as fuzzers do, by a seed: the same seed spoils them in the same way."""

from __future__ import annotations

from random import Random

_INTERESTING = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x01",
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
)


def mutate(data: bytes, chance: Random, others: list[bytes]) -> bytes:
    """`data` with one to four things done to it."""
    spoilt = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        at = chance.randrange(len(spoilt) + 1)
        size = chance.choice((1, 1, 2, 4, 8, 16))
        match chance.randrange(8):
            case 0 if spoilt:
                spoilt[at % len(spoilt)] ^= 1 << chance.randrange(8)
            case 1:
                found = chance.choice(_INTERESTING)
                spoilt[at : at + len(found)] = found
            case 2:
                del spoilt[at : at + size]
            case 3:
                spoilt[at:at] = chance.choice(_INTERESTING)
            case 4:
                spoilt[at:at] = spoilt[at : at + size] * chance.choice((1, 2, 9))
            case 5:
                spoilt[at : at + size] = chance.randbytes(size)
            case 6:
                other = chance.choice(others)
                start = chance.randrange(len(other) + 1)
                spoilt[at:] = other[start:]
            case _:
                del spoilt[at:]
    return bytes(spoilt[:60_000])
