"""Turning good bytes into bad ones."""

from __future__ import annotations

import random
from collections.abc import Callable

from moldau.protocol.primitives import uvarint

BYTES = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
CLAIMS = (
    *((size).to_bytes(4, "big", signed=True) for size in (-1, -2, -(1 << 31), 0, 1, 1000, 1 << 20, (1 << 31) - 1)),
    *((size).to_bytes(2, "big", signed=True) for size in (-1, -2, -(1 << 15), 0, 1, 1000, (1 << 15) - 1)),
    *(uvarint(size) for size in (0, 1, 2, 0x80, 0x7FFF, 0x8001, 0x10000, 1 << 20, 0x7FFFFFFF, 0xFFFFFFFF)),
    b"\xff" * 6,
    b"\x80" * 11,
    (1 << 63).to_bytes(8, "big"),
    ((1 << 63) - 1).to_bytes(8, "big"),
)
"""Lengths, counts and numbers at the edges, in the ways that the wire writes them."""
MUTATIONS_MAX = 4


def mutate(chance: random.Random, data: bytes) -> bytes:
    """One change or a few, anywhere."""
    for _ in range(chance.randrange(1, MUTATIONS_MAX)):
        data = chance.choice(MUTATORS)(chance, data)
    return data


def flip(chance: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    position = chance.randrange(len(data))
    changed = data[position] ^ 1 << chance.randrange(8)
    return data[:position] + bytes((changed,)) + data[position + 1 :]


def replace_byte(chance: random.Random, data: bytes) -> bytes:
    position = chance.randrange(len(data) + 1)
    return data[:position] + bytes((chance.choice(BYTES),)) + data[position + 1 :]


def claim(chance: random.Random, data: bytes) -> bytes:
    """Write a length or number over what is there."""
    position = chance.randrange(len(data) + 1)
    number = chance.choice(CLAIMS)
    return data[:position] + number + data[position + len(number) :]


def insert_claim(chance: random.Random, data: bytes) -> bytes:
    position = chance.randrange(len(data) + 1)
    return data[:position] + chance.choice(CLAIMS) + data[position:]


def truncate(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def extend(chance: random.Random, data: bytes) -> bytes:
    return data + chance.randbytes(chance.choice((1, 4, 100)))


def splice(chance: random.Random, data: bytes) -> bytes:
    """A piece of it said again somewhere else: repeated items, repeated tags."""
    start = chance.randrange(len(data) + 1)
    piece = data[start : start + chance.randrange(1, 40)] * chance.choice((1, 1, 2, 50))
    position = chance.randrange(len(data) + 1)
    return data[:position] + piece + data[position:]


def remove(chance: random.Random, data: bytes) -> bytes:
    start = chance.randrange(len(data) + 1)
    return data[:start] + data[start + chance.randrange(1, 12) :]


MUTATORS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    flip,
    flip,
    replace_byte,
    claim,
    claim,
    insert_claim,
    truncate,
    extend,
    splice,
    remove,
)
