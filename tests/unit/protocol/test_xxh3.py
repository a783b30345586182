"""The hashes of byte strings of every length class, as hash4j 0.22.0 (which Apache Kafka 4.3.1 uses) computed them."""

from __future__ import annotations

import pytest

from moldau.protocol.xxh3 import xxh3_64

HASHES = {
    0: 3244421341483603138,
    1: 1433843135270481901,
    2: 2058273368586827884,
    3: -6266602912829716452,
    4: 7895465118229274323,
    8: 6941064856527638883,
    9: -72226354546400344,
    16: -5131753158909839995,
    17: 8163341949877205007,
    32: 1873302701886544469,
    33: 4486878507168070088,
    64: 2917965298538373825,
    65: -9038134159117547962,
    128: 7440608504995537343,
    129: -4150982730466284604,
    160: -2950444285678012285,
    240: 7229805477010515663,
    241: -8364630114420064745,
    256: 4339360625268998362,
    257: 3039943168460295846,
    1000: 7804479483783519874,
    1024: -7241394453710343503,
    1025: -9192937061388044938,
    1088: 3424848841118183642,
    2049: 6174105427284153526,
    4096: -2935635270157212802,
    10000: -229423296946878931,
}


@pytest.mark.parametrize("size", HASHES)
def test_a_hash_is_that_of_the_reference(size: int) -> None:
    data = bytes((7 * index + 3) % 256 for index in range(size))
    assert int.from_bytes(xxh3_64(data).to_bytes(8, "big"), "big", signed=True) == HASHES[size]


@pytest.mark.parametrize("size", [3, 16, 100, 200, 300, 1100])
def test_every_byte_counts(size: int) -> None:
    data = bytes(size)
    changed = {xxh3_64(data[:at] + b"\x01" + data[at + 1 :]) for at in range(size)}
    assert len({xxh3_64(data), *changed}) == size + 1
