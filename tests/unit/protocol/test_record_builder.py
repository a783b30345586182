"""Batches are built and read back, alone and against the record builders of two other clients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch  # type: ignore[import-untyped]
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch  # type: ignore[import-untyped]
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from moldau.protocol.compression import Codec, DecompressedSizeExceeded
from moldau.protocol.primitives import MalformedMessage, varint
from moldau.protocol.record_batch import HEADER_SIZE, TimestampType, crc_is_valid, parse_header
from moldau.protocol.record_builder import Record, assemble, build_batch
from moldau.protocol.record_reader import records_of

VECTOR = bytes.fromhex(
    "00000000000000000000005c0000000002cce04cb00010000000020000018bcfe568000000018bcfe5681400000000000000070003"
    "00000005000000031c000000046b3004763002026802781c001402046b31047631020268027818002804046b32010202680278"
)
HEADERS = (("h", b"x"),)
VECTOR_RECORDS = [
    Record(b"k0", b"v0", 1_700_000_000_000, HEADERS, 0),
    Record(b"k1", b"v1", 1_700_000_000_010, HEADERS, 1),
    Record(b"k2", None, 1_700_000_000_020, HEADERS, 2),
]
MIXED = [
    Record(b"key", b"value", 1_700_000_000_000),
    Record(None, b"", 1_700_000_000_500, (("a", None), ("ключ", b""), ("a", b"again"))),
    Record(b"", None, 1_699_999_999_000),
    Record(b"big", b"0123456789" * 2_000, 1_700_000_000_000),
]

times = st.integers(-1, 1 << 50)
texts = st.none() | st.binary(max_size=80)
headers = st.lists(st.tuples(st.text(max_size=5), texts), max_size=3).map(tuple)
records = st.lists(st.tuples(texts, texts, times, headers).map(lambda fields: Record(*fields)), min_size=1, max_size=8)


def numbered(given_records: Iterable[Record], first: int = 0) -> list[Record]:
    return [
        Record(record.key, record.value, record.timestamp, record.headers, first + index)
        for index, record in enumerate(given_records)
    ]


def test_the_vector_is_built_byte_for_byte() -> None:
    built = build_batch(
        [Record(record.key, record.value, record.timestamp, record.headers) for record in VECTOR_RECORDS],
        producer_id=7,
        producer_epoch=3,
        base_sequence=5,
        is_transactional=True,
        partition_leader_epoch=0,
    )
    assert built == VECTOR
    assert list(records_of(VECTOR)) == VECTOR_RECORDS


@given(codec=st.sampled_from(Codec), given_records=records, base_offset=st.integers(0, 1 << 40))
def test_random_records_go_round(codec: Codec, given_records: list[Record], base_offset: int) -> None:
    batch = build_batch(given_records, base_offset=base_offset, codec=codec)
    header = parse_header(batch)
    assert crc_is_valid(batch, 0, header) and header.size == len(batch) and header.codec is codec
    assert header.max_timestamp == max(-1, *(record.timestamp for record in given_records))
    assert list(records_of(memoryview(b"__" + batch), 2)) == numbered(given_records, base_offset)


def test_the_time_of_the_append_is_every_records_time() -> None:
    batch = build_batch(MIXED, log_append_time_ms=5)
    assert parse_header(batch).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in records_of(batch)] == [5] * 4


def test_a_delete_horizon_keeps_the_times_of_the_records() -> None:
    batch = build_batch(MIXED, delete_horizon_ms=1_800_000_000_000)
    assert [record.timestamp for record in records_of(batch)] == [record.timestamp for record in MIXED]


def test_compaction_leaves_gaps_and_keeps_the_end() -> None:
    kept = [Record(b"a", b"1", 10, (), 103), Record(b"b", b"2", 20, (), 107)]
    batch = build_batch(kept, base_offset=100, last_offset=109)
    assert parse_header(batch).next_offset == 110
    assert list(records_of(batch)) == kept
    empty = build_batch([], base_offset=100, last_offset=109, producer_id=1, base_sequence=4)
    header = parse_header(empty)
    assert (len(empty), header.records_count, header.base_timestamp, header.last_sequence) == (HEADER_SIZE, 0, -1, 13)
    assert list(records_of(empty)) == []


@pytest.mark.parametrize(
    "wrong", [{"records": [Record(b"a", offset=5), Record(b"b", offset=5)]}, {"records": [], "last_offset": None}]
)
def test_our_own_mistakes_are_asserted(wrong: dict[str, list[Record]]) -> None:
    with pytest.raises(AssertionError):
        build_batch(**wrong)  # type: ignore[arg-type]


# Other clients' builders and readers


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("builder_class", [KafkaPythonBuilder, AiokafkaBuilder])
def test_what_other_clients_build_is_read(builder_class: type[KafkaPythonBuilder], codec: Codec) -> None:
    builder = builder_class(
        magic=2, compression_type=int(codec), is_transactional=1, producer_id=9, producer_epoch=2, base_sequence=3,
        batch_size=1 << 20,
    )  # fmt: skip
    for offset, record in enumerate(MIXED):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = parse_header(batch)
    assert crc_is_valid(batch, 0, header) and header.codec is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 3)
    assert list(records_of(batch)) == numbered(MIXED)
    if codec is Codec.NONE:
        ours = build_batch(MIXED, producer_id=9, producer_epoch=2, base_sequence=3, is_transactional=True)
        assert ours[16:] == batch[16:]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("reader_class", [KafkaPythonBatch, AiokafkaBatch])
def test_what_we_build_is_read_by_other_clients(reader_class: type[KafkaPythonBatch], codec: Codec) -> None:
    batch = reader_class(bytearray(build_batch(MIXED, base_offset=40, codec=codec)))
    assert batch.validate_crc()
    read = [
        Record(record.key, record.value, record.timestamp, tuple(record.headers), record.offset) for record in batch
    ]
    assert read == numbered(MIXED, 40)


# Damage


@pytest.mark.parametrize("codec", Codec)
def test_every_strict_prefix_of_a_batch_is_refused(codec: Codec) -> None:
    batch = build_batch(MIXED[:3], codec=codec)
    for size in range(len(batch)):
        with pytest.raises(MalformedMessage):
            list(records_of(batch[:size]))


def batch_of_body(body: bytes, count: int = 1) -> bytes:
    return assemble((body,), 0, -1, 0, count - 1, 0, 0, -1, -1, -1, count)


def record_of(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(len(body)) + body


GOOD = record_of(b"\0\0\0", varint(1), b"k", varint(1), b"v", varint(0))
DAMAGED = {
    "one byte after the records": GOOD + b"\0",
    "a record longer than it says": varint(len(GOOD) - 2) + GOOD[1:],
    "a record shorter than it says": varint(len(GOOD)) + GOOD[1:] + b"\0",
    "a negative size": varint(-1) + GOOD[1:],
    "a size past the end": varint(1 << 30) + GOOD[1:],
    "a size of six bytes": b"\xff\xff\xff\xff\xff\x01" + GOOD[1:],
    "a key of size -2": record_of(b"\0\0\0", varint(-2), varint(1), b"v", varint(0)),
    "a key past the record": record_of(b"\0\0\0", varint(50), b"k", varint(1), b"v", varint(0)),
    "a value of size -2": record_of(b"\0\0\0", varint(-1), varint(-2), varint(0)),
    "headers that are not there": record_of(b"\0\0\0", varint(-1), varint(-1), varint(1)),
    "a negative count of headers": record_of(b"\0\0\0", varint(-1), varint(-1), varint(-1)),
    "a huge count of headers": record_of(b"\0\0\0", varint(-1), varint(-1), varint((1 << 31) - 1)),
    "a header without a key": record_of(b"\0\0\0", varint(-1), varint(-1), varint(1), varint(-1), varint(-1)),
    "a header with a value of size -2": record_of(b"\0\0\0", varint(-1), varint(-1), varint(1), varint(0), varint(-2)),
    "a timestamp delta past 64 bits": record_of(b"\0", b"\xff" * 9 + b"\x02", b"\0", varint(-1), varint(-1), b"\0"),
    "nothing": b"",
}


@pytest.mark.parametrize("body", DAMAGED.values(), ids=DAMAGED)
def test_a_record_whose_framing_is_wrong_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        list(records_of(batch_of_body(body)))


@pytest.mark.parametrize("count", [-1, 0, 2, (1 << 31) - 1])
def test_the_header_counts_the_records(count: int) -> None:
    with pytest.raises(MalformedMessage):
        list(records_of(batch_of_body(GOOD, count)))


def test_records_are_read_as_they_are_asked_for() -> None:
    reading = records_of(batch_of_body(GOOD + b"\x01", 2))
    assert next(reading).value == b"v"
    with pytest.raises(MalformedMessage):
        next(reading)


def test_a_reader_may_bound_what_it_expands() -> None:
    with pytest.raises(DecompressedSizeExceeded):
        list(records_of(build_batch(MIXED, codec=Codec.ZSTD), size_max=1_000))


def test_a_header_key_that_is_not_utf8_is_read_with_replacement() -> None:
    body = record_of(b"\0\0\0", varint(-1), varint(-1), varint(1), varint(2), b"a\xff", varint(-1))
    assert next(records_of(batch_of_body(body))).headers == (("a\ufffd", None),)


@given(position=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_damaged_byte_raises_nothing_but_malformed(position: int, value: int) -> None:
    batch = bytearray(build_batch(MIXED[:3]))
    batch[position % len(batch)] = value
    with contextlib.suppress(MalformedMessage):
        list(records_of(batch))
