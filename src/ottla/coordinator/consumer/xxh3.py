"""XXH3, 64 bits, seed 0: the hash over a group's topics that Kafka stores in ConsumerGroupMetadata.

From the algorithm's published description. Short inputs each have a way of their own; longer ones are taken in stripes
of 64 bytes into eight accumulators, which are scrambled after every block of sixteen stripes.
"""

from __future__ import annotations

import struct

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_M64 = 0xFFFFFFFFFFFFFFFF
_M32 = 0xFFFFFFFF
_PRIME32_1 = 0x9E3779B1
_PRIME32_2 = 0x85EBCA77
_PRIME32_3 = 0xC2B2AE3D
_PRIME64_1 = 0x9E3779B185EBCA87
_PRIME64_2 = 0xC2B2AE3D27D4EB4F
_PRIME64_3 = 0x165667B19E3779F9
_PRIME64_4 = 0x85EBCA77C2B2AE63
_PRIME64_5 = 0x27D4EB2F165667C5
_PRIME_MX1 = 0x165667919E3779F9
_PRIME_MX2 = 0x9FB21C651E98DF25

_STRIPE = struct.Struct("<8Q")
_LONG = struct.Struct("<Q")
_INT = struct.Struct("<I")
_STRIPE_KEYS = tuple(_STRIPE.unpack_from(_SECRET, 8 * stripe) for stripe in range(16))
"""Of the sixteen stripes of a block."""
_SCRAMBLE_KEYS = _STRIPE.unpack_from(_SECRET, 128)
_LAST_STRIPE_KEYS = _STRIPE.unpack_from(_SECRET, 121)


def xxh3_64(data: bytes) -> int:
    """The hash as an unsigned number."""
    size = len(data)
    if size <= 16:
        return _upto_16(data, size)
    if size <= 128:
        return _upto_128(data, size)
    if size <= 240:
        return _upto_240(data, size)
    return _long(data, size)


def _read(data: bytes, position: int) -> int:
    found: int = _LONG.unpack_from(data, position)[0]
    return found


def _fold(a: int, b: int) -> int:
    product = a * b
    return (product & _M64) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _PRIME_MX1 & _M64
    return value ^ (value >> 32)


def _xxh64_avalanche(value: int) -> int:
    value ^= value >> 33
    value = value * _PRIME64_2 & _M64
    value ^= value >> 29
    value = value * _PRIME64_3 & _M64
    return value ^ (value >> 32)


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _M64


def _upto_16(data: bytes, size: int) -> int:
    if size > 8:
        low = _read(data, 0) ^ _read(_SECRET, 24) ^ _read(_SECRET, 32)
        high = _read(data, size - 8) ^ _read(_SECRET, 40) ^ _read(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _fold(low, high)) & _M64)
    if size >= 4:
        first: int = _INT.unpack_from(data, 0)[0]
        last: int = _INT.unpack_from(data, size - 4)[0]
        keyed = (last + (first << 32)) ^ _read(_SECRET, 8) ^ _read(_SECRET, 16)
        keyed ^= _rotate(keyed, 49) ^ _rotate(keyed, 24)
        keyed = keyed * _PRIME_MX2 & _M64
        keyed ^= (keyed >> 35) + size
        keyed = keyed * _PRIME_MX2 & _M64
        return keyed ^ (keyed >> 28)
    if size:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        flip: int = _INT.unpack_from(_SECRET, 0)[0] ^ _INT.unpack_from(_SECRET, 4)[0]
        return _xxh64_avalanche(combined ^ flip)
    return _xxh64_avalanche(_read(_SECRET, 56) ^ _read(_SECRET, 64))


def _mix_16(data: bytes, position: int, key: int) -> int:
    return _fold(_read(data, position) ^ _read(_SECRET, key), _read(data, position + 8) ^ _read(_SECRET, key + 8))


def _upto_128(data: bytes, size: int) -> int:
    result = size * _PRIME64_1
    for step in range((size - 1) // 32, -1, -1):
        result += _mix_16(data, 16 * step, 32 * step) + _mix_16(data, size - 16 * (step + 1), 32 * step + 16)
    return _avalanche(result & _M64)


def _upto_240(data: bytes, size: int) -> int:
    result = size * _PRIME64_1 + sum(_mix_16(data, 16 * step, 16 * step) for step in range(8))
    result = _avalanche(result & _M64)
    result += sum(_mix_16(data, 16 * step, 16 * (step - 8) + 3) for step in range(8, size // 16))
    result += _mix_16(data, size - 16, 119)
    return _avalanche(result & _M64)


def _accumulate(lanes: list[int], stripe: tuple[int, ...], keys: tuple[int, ...]) -> None:
    for lane in range(8):
        value = stripe[lane]
        keyed = value ^ keys[lane]
        lanes[lane ^ 1] += value
        lanes[lane] += (keyed & _M32) * (keyed >> 32)
    for lane in range(8):
        lanes[lane] &= _M64


def _long(data: bytes, size: int) -> int:
    lanes = [
        _PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1,
    ]  # fmt: skip
    stripes = (size - 1) // 64
    for number in range(stripes):
        _accumulate(lanes, _STRIPE.unpack_from(data, 64 * number), _STRIPE_KEYS[number % 16])
        if number % 16 == 15:
            for lane in range(8):
                value = lanes[lane]
                lanes[lane] = (value ^ (value >> 47) ^ _SCRAMBLE_KEYS[lane]) * _PRIME32_1 & _M64
    _accumulate(lanes, _STRIPE.unpack_from(data, size - 64), _LAST_STRIPE_KEYS)
    result = size * _PRIME64_1
    for pair in range(4):
        key = 11 + 16 * pair
        result += _fold(lanes[2 * pair] ^ _read(_SECRET, key), lanes[2 * pair + 1] ^ _read(_SECRET, key + 8))
    return _avalanche(result & _M64)
