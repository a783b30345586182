"""No bytes of a peer make a decoder raise anything but `MalformedMessage`, or allocate more than they are worth."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.protocol.compiler import decode, decoder_of, encode
from moldau.protocol.messages.api_versions import ApiVersionsResponse
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.primitives import (
    TEXT_SIZE_MAX,
    MalformedMessage,
    read_uvarint,
    read_varint,
    read_varlong,
    skip_tags,
    uvarint,
    varint,
)
from moldau.protocol.schema import spec_of
from tests.unit.protocol.facts.reading import declared, java_bytes, served_versions

pytestmark = pytest.mark.slow

each_message = pytest.mark.parametrize("cls", declared().values(), ids=declared())
DECODERS = [(cls, version) for cls in declared().values() for version in served_versions(cls)]
PREFIXES_MAX = 150
"""Of longer messages, as many prefixes as this are tried."""
HOSTILE_CLAIMS = {
    False: [bytes.fromhex(claim) for claim in ("7fffffff", "00010000", "7fff")],
    True: [uvarint(length) for length in (0xFFFFFFFF, 0x7FFFFFFF, 0x10000)],
}
"""Lengths and counts beyond any message here, as versions that are (not) flexible write them."""
OVERHEAD = 64 << 10
"""What decoding a message of a few bytes may allocate."""


@each_message
def test_every_strict_prefix_is_malformed(cls: type[object]) -> None:
    for version in served_versions(cls):
        for whole in java_bytes()[cls.__name__, version].samples:
            sizes = random.Random(len(whole)).sample(range(len(whole)), min(len(whole), PREFIXES_MAX))
            for size in sorted(sizes):
                with pytest.raises(MalformedMessage):
                    decode(cls, memoryview(whole)[:size], version)


@each_message
def test_bytes_changed_at_random_are_read_or_malformed(cls: type[object]) -> None:
    chance = random.Random(cls.__name__)
    for version in served_versions(cls):
        for whole in java_bytes()[cls.__name__, version].samples:
            for _ in range(20):
                changed = bytearray(whole)
                for _ in range(chance.randrange(1, 4) if whole else 0):
                    changed[chance.randrange(len(changed))] = chance.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
                read_or_malformed(cls, bytes(changed), version)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(DECODERS), st.binary(max_size=200))
def test_any_bytes_are_read_or_malformed(decoder: tuple[type[object], int], data: bytes) -> None:
    read_or_malformed(decoder[0], data, decoder[1])


def read_or_malformed(cls: type[object], data: bytes, version: int) -> None:
    try:
        _, position = decoder_of(cls, version)(memoryview(data), 0)
    except MalformedMessage:
        return
    assert 0 <= position <= len(data)


@each_message
def test_a_hostile_length_allocates_nothing(cls: type[object]) -> None:
    for version in served_versions(cls):
        whole = java_bytes()[cls.__name__, version].samples[0]
        decoder_of(cls, version)
        for position in range(0, len(whole), max(1, len(whole) // 25)):
            for claim in HOSTILE_CLAIMS[version in spec_of(cls).flexible]:
                hostile = whole[:position] + claim + whole[position + len(claim) :]
                tracemalloc.start()
                read_or_malformed(cls, hostile, version)
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert peak < OVERHEAD, f"{peak} bytes for {claim.hex()} at {position} in version {version}"


def test_a_count_is_held_against_what_the_items_take_at_least() -> None:
    with pytest.raises(MalformedMessage, match="topics"):
        decode(MetadataRequest, (1000).to_bytes(4, "big") + bytes(1999), 0)


def test_bytes_after_a_message_are_left_to_the_caller() -> None:
    # The reference takes requests with bytes left over; records must fill their value.
    request = (0).to_bytes(4, "big")
    _, position = decoder_of(MetadataRequest, 0)(request + b"more", 0)
    assert position == 4
    with pytest.raises(MalformedMessage, match="4 bytes left over"):
        decode(MetadataRequest, request + b"more", 0)


# The tagged section

FETCH_12 = bytes.fromhex("ffffffff 00000000 00000000 000003e8 00 00000000 ffffffff 01 01 01")
"""A Fetch request in version 12 that asks for nothing, without its tagged section."""
CLUSTER_ID = b"\0\x03\x03c1"
"""Tag 0: the cluster id "c1"."""
UNKNOWN = b"\x7f\x02ab"


def fetch_request(*tags: bytes) -> FetchRequest:
    return decode(FetchRequest, FETCH_12 + uvarint(len(tags)) + b"".join(tags), 12)


def test_a_message_without_tags_has_their_defaults() -> None:
    assert fetch_request().cluster_id is None


@pytest.mark.parametrize(
    "tags",
    [(CLUSTER_ID,), (UNKNOWN, CLUSTER_ID), (CLUSTER_ID, UNKNOWN), (UNKNOWN, UNKNOWN, CLUSTER_ID, b"\x80\x01\0")],
)
def test_a_known_tag_is_found_wherever_it_stands(tags: tuple[bytes, ...]) -> None:
    assert fetch_request(*tags).cluster_id == "c1"


def test_of_a_tag_sent_twice_the_last_counts() -> None:
    assert fetch_request(CLUSTER_ID, b"\0\x03\x03c2").cluster_id == "c2"


def test_a_tag_of_null() -> None:
    assert fetch_request(b"\0\x01\0").cluster_id is None


@pytest.mark.parametrize(
    "tag",
    [
        pytest.param(b"\0\x04\x03c1\0", id="the size of a known tag is too large"),
        pytest.param(b"\0\x02\x03c1", id="the size of a known tag is too small"),
        pytest.param(b"\x7f\x0aab", id="an unknown tag ends outside"),
        pytest.param(b"\x7f", id="no size"),
        pytest.param(b"\x7f\xff\xff\xff\xff\x0f", id="a size of four gigabytes"),
        pytest.param(b"\xff\xff\xff\xff\xff\x01\0", id="a tag number past 32 bits"),
    ],
)
def test_a_tag_that_does_not_fit_is_malformed(tag: bytes) -> None:
    with pytest.raises(MalformedMessage):
        fetch_request(tag)


def test_a_flood_of_tags_takes_no_memory() -> None:
    flood = uvarint(1000) + b"\x7f\0" * 1000
    tracemalloc.start()
    decode(FetchRequest, FETCH_12 + flood, 12)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < OVERHEAD + 2 * len(flood)


def test_a_claim_of_many_tags_ends_with_the_bytes() -> None:
    with pytest.raises(MalformedMessage):
        decode(FetchRequest, FETCH_12 + uvarint(0xFFFFFFFF) + UNKNOWN * 3, 12)
    with pytest.raises(IndexError):
        skip_tags(uvarint(5) + b"\1\0\1\0", 0)


def test_tagged_structs_hold_tagged_sections_of_their_own() -> None:
    # Each partition's tag 1 is a struct that ends in a tagged section; an unknown tag stands in it.
    partition = (
        bytes.fromhex("00000007 0000")
        + bytes(24)
        + b"\x01"
        + b"\xff\xff\xff\xff\x00"
        + b"\x01\x01\x0c"
        + bytes.fromhex("00000003 00000009")
        + b"\x01\x05\x01\xee"
    )
    topic = b"\x02t" + b"\x02" + partition + b"\0"
    data = bytes(10) + b"\x02" + topic + b"\0"
    read = decode(FetchResponse, data, 12)
    leader = read.responses[0].partitions[0].current_leader
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (3, 9)
    assert read.responses[0].partitions[0].records is None


def test_an_unknown_tag_at_the_end_of_every_struct_is_skipped() -> None:
    partition = bytes.fromhex("00000000 01") + b"\x01" + UNKNOWN
    topic = b"\x02t\x02" + partition + b"\x02" + UNKNOWN + UNKNOWN
    data = b"\0" + b"\0\x01" + bytes(4) + b"\x02" + topic + b"\x81\0" + UNKNOWN
    read = decode(ProduceRequest, data, 9)
    assert read.topic_data[0].partition_data[0].records == b""


def test_an_array_in_a_tag_may_be_empty() -> None:
    read = decode(ApiVersionsResponse, b"\0\0\x01" + bytes(4) + b"\x01\0\x01\x01", 3)
    assert read.supported_features == []


# Lengths below zero, and texts


def test_a_length_below_zero_is_null_where_null_is_allowed() -> None:
    for length in (-1, -2, -(1 << 31)):
        assert decode(MetadataRequest, length.to_bytes(4, "big", signed=True), 1).topics is None


def test_a_length_below_zero_is_malformed_where_null_is_not_allowed() -> None:
    for length in (-1, -2, -(1 << 31)):
        with pytest.raises(MalformedMessage):
            decode(MetadataRequest, length.to_bytes(4, "big", signed=True), 0)


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    read = decode(MetadataRequest, b"\0\0\0\x01\0\x02\xff\xfe", 0)
    assert read.topics is not None
    assert read.topics[0].name == "\ufffd\ufffd"


def test_a_string_that_was_read_can_be_written() -> None:
    """A byte that is not UTF-8 becomes three, and a string may have 32,767 bytes."""
    for size in (TEXT_SIZE_MAX // 3, TEXT_SIZE_MAX // 3 + 1, TEXT_SIZE_MAX):
        for character in (b"x", b"\xff"):
            data = b"\0\0\0\x01" + size.to_bytes(2, "big") + character * size
            if character == b"x" or size == TEXT_SIZE_MAX // 3:
                read = decode(MetadataRequest, data, 0)
                assert decode(MetadataRequest, encode(read, 0), 0) == read
            else:
                with pytest.raises(MalformedMessage, match=f"a string of {size} bytes that is not UTF-8"):
                    decode(MetadataRequest, data, 0)


# Variable-length integers


@settings(deadline=None)
@given(st.integers(0, 0xFFFFFFFF))
def test_an_unsigned_varint_is_read_as_written(value: int) -> None:
    written = uvarint(value)
    assert read_uvarint(b"x" + written + b"y", 1) == (value, 1 + len(written))
    assert len(written) == max(1, -(-value.bit_length() // 7))


@settings(deadline=None)
@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_varint_is_read_as_written(value: int) -> None:
    assert read_varint(varint(value), 0) == (value, len(varint(value)))


@settings(deadline=None)
@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_varlong_is_read_as_written(value: int) -> None:
    assert read_varlong(varint(value), 0) == (value, len(varint(value)))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0),
        ("7f", 127),
        ("8001", 128),
        ("ff7f", 16383),
        ("808001", 16384),
        ("8000", 0),
        ("ffffffff0f", 0xFFFFFFFF),
    ],
)
def test_unsigned_varints_known_by_heart(data: str, value: int) -> None:
    assert read_uvarint(bytes.fromhex(data), 0) == (value, len(data) // 2)


def test_a_varint_that_is_too_long_is_malformed() -> None:
    for data in (b"\x80" * 5 + b"\0", b"\xff\xff\xff\xff\x10", b"\xff" * 10):
        with pytest.raises(MalformedMessage):
            read_uvarint(data, 0)
    for data in (b"\x80" * 10 + b"\0", b"\xff" * 9 + b"\x02", b"\xff" * 20):
        with pytest.raises(MalformedMessage):
            read_varlong(data, 0)


def test_a_varint_that_is_cut_short_ends_with_the_buffer() -> None:
    for read in (read_uvarint, read_varint, read_varlong):
        with pytest.raises(IndexError):
            read(b"\x80\x80", 0)
