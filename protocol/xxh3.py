"""XXH3 with 64 bits, seed 0 and the default secret: the hash of a group's topics in the group's records.

It was written after the specification of the xxHash project. Apache Kafka computes the hash with its `putLong`,
`putInt` and `putString`, all little-endian (`coordinator/group/metadata_hash.py`). The hash is computed over a few
bytes for each partition of a topic, once for each change of the topic, so plain Python is fast enough: about 5 ms for
10,000 partitions.
"""

from __future__ import annotations

from struct import Struct, unpack_from
from typing import Final

MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
PRIME32_1: Final = 0x9E3779B1
PRIME32_2: Final = 0x85EBCA77
PRIME32_3: Final = 0xC2B2AE3D
PRIME64_1: Final = 0x9E3779B185EBCA87
PRIME64_2: Final = 0xC2B2AE3D27D4EB4F
PRIME64_3: Final = 0x165667B19E3779F9
PRIME64_4: Final = 0x85EBCA77C2B2AE63
PRIME64_5: Final = 0x27D4EB2F165667C5
MX1: Final = 0x165667919E3779F9
MX2: Final = 0x9FB21C651E98DF25
SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8"
    "fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb17"
    "0ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
"""The default secret (192 bytes)."""
STRIPE_BYTES: Final = 64
STRIPES_IN_BLOCK: Final = (len(SECRET) - STRIPE_BYTES) // 8
BLOCK_BYTES: Final = STRIPE_BYTES * STRIPES_IN_BLOCK
LANES: Final = Struct("<8Q")
SHORT_BYTES_MAX: Final = 240
"""The longest input (bytes) for which the algorithm needs no accumulators."""


def xxh3_64(data: bytes) -> int:
    """The XXH3 hash of the bytes, as an unsigned 64-bit number."""
    size = len(data)
    if size <= 16:
        return _up_to_16(data, size)
    if size <= 128:
        return _up_to_128(data, size)
    if size <= SHORT_BYTES_MAX:
        return _up_to_240(data, size)
    return _long(data, size)


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _folded_product(a: int, b: int) -> int:
    product = a * b
    return (product & MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * MX1 & MASK
    return value ^ (value >> 32)


def _avalanche_64(value: int) -> int:
    value ^= value >> 33
    value = value * PRIME64_2 & MASK
    value ^= value >> 29
    value = value * PRIME64_3 & MASK
    return value ^ (value >> 32)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def _up_to_16(data: bytes, size: int) -> int:
    if size > 8:
        low = _u64(data, 0) ^ _u64(SECRET, 24) ^ _u64(SECRET, 32)
        high = _u64(data, size - 8) ^ _u64(SECRET, 40) ^ _u64(SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _folded_product(low, high)) & MASK)
    if size >= 4:
        value = _u32(data, size - 4) | _u32(data, 0) << 32
        value ^= _u64(SECRET, 8) ^ _u64(SECRET, 16)
        value ^= _rotated(value, 49) ^ _rotated(value, 24)
        value = value * MX2 & MASK
        value ^= (value >> 35) + size
        value = value * MX2 & MASK
        return value ^ (value >> 28)
    if size:
        value = data[0] << 16 | data[size >> 1] << 24 | data[size - 1] | size << 8
        return _avalanche_64(value ^ _u32(SECRET, 0) ^ _u32(SECRET, 4))
    return _avalanche_64(_u64(SECRET, 56) ^ _u64(SECRET, 64))


def _mixed_16(data: bytes, at: int, secret_at: int) -> int:
    return _folded_product(_u64(data, at) ^ _u64(SECRET, secret_at), _u64(data, at + 8) ^ _u64(SECRET, secret_at + 8))


def _up_to_128(data: bytes, size: int) -> int:
    total = size * PRIME64_1
    for i in range((size - 1) // 32 + 1):
        total += _mixed_16(data, 16 * i, 32 * i) + _mixed_16(data, size - 16 * (i + 1), 32 * i + 16)
    return _avalanche(total & MASK)


def _up_to_240(data: bytes, size: int) -> int:
    total = size * PRIME64_1
    for i in range(8):
        total += _mixed_16(data, 16 * i, 16 * i)
    total = _avalanche(total & MASK)
    for i in range(8, size // 16):
        total += _mixed_16(data, 16 * i, 16 * (i - 8) + 3)
    return _avalanche((total + _mixed_16(data, size - 16, 136 - 17)) & MASK)


def _accumulate(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    values, keys = LANES.unpack_from(data, at), LANES.unpack_from(SECRET, secret_at)
    for i in range(8):
        value = values[i]
        keyed = value ^ keys[i]
        lanes[i ^ 1] += value
        lanes[i] = (lanes[i] + (keyed & 0xFFFF_FFFF) * (keyed >> 32)) & MASK


def _long(data: bytes, size: int) -> int:
    lanes = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1]
    blocks = (size - 1) // BLOCK_BYTES
    scramble_keys = unpack_from("<8Q", SECRET, len(SECRET) - STRIPE_BYTES)
    for block in range(blocks):
        for stripe in range(STRIPES_IN_BLOCK):
            _accumulate(lanes, data, block * BLOCK_BYTES + stripe * STRIPE_BYTES, 8 * stripe)
        for i in range(8):
            lane = lanes[i] & MASK
            lanes[i] = ((lane ^ (lane >> 47)) ^ scramble_keys[i]) * PRIME32_1 & MASK
    for stripe in range((size - 1 - BLOCK_BYTES * blocks) // STRIPE_BYTES):
        _accumulate(lanes, data, blocks * BLOCK_BYTES + stripe * STRIPE_BYTES, 8 * stripe)
    _accumulate(lanes, data, size - STRIPE_BYTES, len(SECRET) - STRIPE_BYTES - 7)
    total = size * PRIME64_1
    for i in range(4):
        first, second = lanes[2 * i] & MASK, lanes[2 * i + 1] & MASK
        total += _folded_product(first ^ _u64(SECRET, 11 + 16 * i), second ^ _u64(SECRET, 19 + 16 * i))
    return _avalanche(total & MASK)
