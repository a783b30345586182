"""The header of a batch is read in place; what a leader assigns is patched outside of the checksum."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import Codec
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import (
    FIELDS,
    HEADER,
    HEADER_SIZE,
    PREFIX,
    PREFIX_SIZE,
    SEQUENCE_MAX,
    BatchHeader,
    TimestampType,
    crc_is_valid,
    parse_header,
    sequence_after,
)
from moldau.protocol.record_builder import Record, build_batch

# From an independent encoder: transactional, producer 7, epoch 3, sequence 5, three records, the third a tombstone.
VECTOR = bytes.fromhex(
    "00000000000000000000005c0000000002cce04cb00010000000020000018bcfe568000000018bcfe5681400000000000000070003"
    "00000005000000031c000000046b3004763002026802781c001402046b31047631020268027818002804046b32010202680278"
)
ONE = build_batch([Record(b"a", b"1", 10)])
TWO = build_batch([Record(b"b", b"2", 20), Record(b"c", b"3", 30)], base_offset=1)


def fields_of(header: BatchHeader) -> dict[str, int]:
    return {name: getattr(header, name) for name in FIELDS}


@pytest.mark.parametrize("shape", [bytes, bytearray, memoryview])
def test_the_vector_is_read(shape: type[bytes]) -> None:
    header = parse_header(shape(b"before" + VECTOR), 6)
    assert fields_of(header) == {
        "base_offset": 0,
        "batch_length": 92,
        "partition_leader_epoch": 0,
        "magic": 2,
        "crc": 0xCCE04CB0,
        "attributes": 0x10,
        "last_offset_delta": 2,
        "base_timestamp": 1_700_000_000_000,
        "max_timestamp": 1_700_000_000_020,
        "producer_id": 7,
        "producer_epoch": 3,
        "base_sequence": 5,
        "records_count": 3,
    }
    assert crc_is_valid(shape(b"before" + VECTOR), 6, header)
    assert (header.size, header.last_offset, header.next_offset, header.last_sequence) == (len(VECTOR), 2, 3, 7)
    assert header.is_transactional and header.has_producer_id
    assert not header.is_control and not header.is_compressed and header.delete_horizon_ms is None
    assert header.codec is Codec.NONE and header.timestamp_type is TimestampType.CREATE_TIME
    assert "crc=3437251760" in repr(header)


@pytest.mark.parametrize("codec", Codec)
def test_the_attributes_say_the_codec(codec: Codec) -> None:
    header = parse_header(build_batch([Record(b"a", b"1")], codec=codec))
    assert header.codec is codec and header.is_compressed == (codec is not Codec.NONE)


def test_an_unknown_codec_is_malformed_when_it_is_asked_for() -> None:
    header = parse_header(ONE)
    header.attributes = 5
    with pytest.raises(MalformedMessage, match="compression type id 5"):
        _ = header.codec


def test_the_delete_horizon_lies_where_the_base_timestamp_was() -> None:
    header = parse_header(build_batch([Record(b"a", None, 10)], delete_horizon_ms=99))
    assert header.delete_horizon_ms == 99


def test_sequences_wrap_at_the_largest_int32() -> None:
    assert sequence_after(SEQUENCE_MAX, 1) == 0
    assert sequence_after(SEQUENCE_MAX - 1, 3) == 1
    header = parse_header(TWO)
    assert header.last_sequence == -1
    header.base_sequence = SEQUENCE_MAX
    assert header.last_sequence == 0


@pytest.mark.parametrize("size", range(HEADER_SIZE))
def test_every_strict_prefix_of_a_header_is_refused(size: int) -> None:
    with pytest.raises(MalformedMessage):
        parse_header(VECTOR[:size])


def test_the_rest_of_the_batch_need_not_be_there() -> None:
    assert parse_header(VECTOR[:HEADER_SIZE]).records_count == 3
    assert not crc_is_valid(VECTOR[:-1], 0, parse_header(VECTOR))


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 14, 48])
def test_a_length_that_cannot_hold_a_header_is_refused(length: int) -> None:
    with pytest.raises(MalformedMessage, match="length"):
        parse_header(VECTOR[:8] + length.to_bytes(4, "big", signed=True) + VECTOR[12:])


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_refused(magic: int) -> None:
    with pytest.raises(MalformedMessage, match="magic"):
        parse_header(VECTOR[:16] + bytes([magic]) + VECTOR[17:])


@pytest.mark.parametrize("position", range(21, len(VECTOR)))
def test_the_checksum_covers_the_attributes_and_all_after_them(position: int) -> None:
    damaged = bytearray(VECTOR)
    damaged[position] ^= 0x40
    assert not crc_is_valid(damaged, 0, parse_header(damaged))


def test_what_the_leader_assigns_is_outside_of_the_checksum() -> None:
    batch = bytearray(b"...") + TWO
    PREFIX.pack_into(batch, 3, 1 << 40, parse_header(TWO).batch_length, 17)
    header = parse_header(batch, 3)
    assert (header.base_offset, header.next_offset, header.partition_leader_epoch) == (1 << 40, (1 << 40) + 2, 17)
    assert crc_is_valid(batch, 3, header)
    assert TWO[PREFIX_SIZE:] == batch[3 + PREFIX_SIZE :]


# Several batches


def test_batches_lie_back_to_back() -> None:
    batches = iterate_batches(b"--" + ONE + TWO + b"--", 2, 2 + len(ONE) + len(TWO))
    assert [(position, header.last_offset) for position, header in batches] == [(2, 0), (2 + len(ONE), 2)]
    assert batches.partial_size == 0


@pytest.mark.parametrize("size", range(1, len(TWO)))
def test_a_batch_cut_short_at_the_end_is_reported(size: int) -> None:
    batches = iterate_batches(memoryview(ONE + TWO[:size]))
    assert [position for position, _ in batches] == [0]
    assert (batches.position, batches.partial_size) == (len(ONE), size)


@pytest.mark.parametrize("tail", [bytes(12), bytes(61), TWO[:16] + b"\x03", TWO[:8] + b"\xff\xff\xff\xff"])
def test_what_cannot_begin_a_batch_is_not_called_partial(tail: bytes) -> None:
    batches = iterate_batches(ONE + tail)
    next(batches)
    with pytest.raises(MalformedMessage):
        next(batches)


@given(data=st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        for position, header in iterate_batches(data):
            assert crc_is_valid(data, position, header) in (True, False)


@given(values=st.tuples(*(st.integers(-100, 100) for _ in FIELDS)), tail=st.binary(max_size=40))
def test_random_headers_raise_nothing_but_malformed(values: tuple[int, ...], tail: bytes) -> None:
    fields = dict(zip(FIELDS, values, strict=True))
    fields |= {"crc": abs(fields["crc"]), "magic": 2, "batch_length": HEADER.size - 12 + len(tail)}
    data = HEADER.pack(*fields.values()) + tail
    with contextlib.suppress(MalformedMessage):
        for position, parsed in iterate_batches(data):
            assert not crc_is_valid(data, position, parsed), "a CRC-32C this small is not drawn"
            assert (parsed.codec, parsed.timestamp_type) == (parsed.attributes & 7, parsed.attributes >> 3 & 1)
            assert parsed.last_sequence == -1 or parsed.base_sequence != -1


# The checksum


def shapes_of(data: bytes) -> list[BytesLike]:
    return [data, bytearray(data), memoryview(data), memoryview(bytearray(b"_" + data))[1:]]


def test_crc32c_has_the_published_check_value() -> None:
    from moldau.protocol.primitives import crc32c

    assert [crc32c(shape, 0) for shape in shapes_of(b"123456789")] == [0xE3069283] * 4
    assert crc32c(b"6789", crc32c(b"12345", 0)) == 0xE3069283


def test_the_checksum_does_not_ask_for_package_metadata() -> None:
    program = (
        "import sys; from moldau.protocol import primitives; "
        "print('importlib.metadata' in sys.modules, primitives.crc32c(b'', 0))"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False 0\n"
