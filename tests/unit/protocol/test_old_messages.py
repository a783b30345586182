"""Messages of formats 0 and 1, as records and as batches v2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import Codec
from moldau.protocol.old_messages import upgrade_messages
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import TimestampType, crc_is_valid, parse_header
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of
from moldau.protocol.record_validation import RejectedBatch, validate_header
from moldau.storage.log_config import LogConfig
from tests.support.old_messages import message, messages, old_records, old_segment, wrapper


def read(data: bytes) -> list[Record]:
    return [record for position, header in iterate_batches(data) for record in records_of(data, position, header)]


def test_each_codec_of_both_formats_gives_its_records() -> None:
    data, records = old_segment(100)
    assert read(data) == records
    assert read(bytes(memoryview(b"-" + data)[1:])) == records


def test_messages_that_apache_kafka_dumps_as_valid_are_read() -> None:
    # DumpLogSegments of 4.3.1: offset 0, magic 0, crc 2137760243, k, v0-0; offset 2, magic 1, crc 2274275495, k, v1-2.
    data = bytes.fromhex(
        "0000000000000000000000137f6ba1f30000000000016b0000000476302d30"
        "00000000000000020000001b878eb0a70100000001a2243bdc86000000016b0000000476312d32"
    )
    headers = [header for position, header in iterate_batches(data) if crc_is_valid(data, position, header)]
    assert [(each.base_offset, each.magic, each.crc) for each in headers] == [(0, 0, 2137760243), (2, 1, 2274275495)]
    assert read(data) == [Record(b"k", b"v0-0", -1, (), 0), Record(b"k", b"v1-2", 1795904232582, (), 2)]


def test_inner_offsets_of_format_1_may_count_from_any_number_and_have_gaps() -> None:
    inner = [Record(b"k", b"v", 5, (), offset) for offset in (3, 4, 9)]
    outer = message(Record(None, _gzip(messages(inner, 1)), 5, (), 109), 1, attributes=Codec.GZIP)
    assert [record.offset for record in read(outer)] == [103, 104, 109]


def test_an_upgraded_batch_has_offsets_times_and_records_of_the_messages() -> None:
    data, records = old_segment(7)
    got = []
    for position, header in iterate_batches(data):
        assert crc_is_valid(data, position, header)
        newer, batch = upgrade_messages(data, position, header, size_max=1 << 20)
        its = list(records_of(batch))
        assert (newer.magic, newer.base_offset, newer.last_offset) == (2, its[0].offset, header.last_offset)
        assert newer.records_count == len(its) and crc_is_valid(batch, 0, newer)
        assert newer.timestamp_type is header.timestamp_type
        assert newer.max_timestamp == max(each.timestamp for each in its)
        got += its
    assert got == records
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_that_is_cut_short_is_not_read(magic: int) -> None:
    whole = messages(old_records(0, 2, magic), magic)
    first_size = parse_header(whole, 0, True).size
    for size in range(first_size, len(whole)):
        batches = iterate_batches(whole[:size])
        assert len(list(batches)) == 1
        assert batches.partial_size == size - first_size


def test_damage_is_told_by_the_checksum() -> None:
    data = bytearray(message(Record(b"key", b"value", 1, (), 3), 1))
    data[-1] ^= 1
    assert not crc_is_valid(bytes(data), 0, parse_header(bytes(data), 0, True))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "no value"),
        (b"no gzip", "gzip"),
        (b"", "gzip"),
    ],
)
def test_a_wrapper_without_messages_is_refused(value: bytes | None, problem: str) -> None:
    data = message(Record(None, value, 1, (), 3), 1, attributes=Codec.GZIP)
    with pytest.raises(MalformedMessage, match=problem):
        read(data)


def test_a_wrapper_of_another_format_or_of_wrappers_is_refused() -> None:
    inner = messages(old_records(0, 2, 0), 0)
    other = message(Record(None, _gzip(inner), 1, (), 1), 1, attributes=Codec.GZIP)
    nested = wrapper(old_records(0, 2, 1), 1, Codec.GZIP)
    twice = message(Record(None, _gzip(nested), 1, (), 1), 1, attributes=Codec.GZIP)
    torn = message(Record(None, _gzip(inner[:-1]), 1, (), 1), 0, attributes=Codec.GZIP)
    for data in (other, twice, torn):
        with pytest.raises(MalformedMessage):
            read(data)


@given(data=st.binary(max_size=80), magic=st.sampled_from((0, 1)))
def test_random_bytes_raise_nothing_but_malformed(data: bytes, magic: int) -> None:
    data = data[:16] + bytes((magic,)) + data[17:]
    try:
        for position, header in iterate_batches(data):
            list(records_of(data, position, header, size_max=1 << 16))
    except MalformedMessage:
        pass


@pytest.mark.parametrize("magic", [0, 1])
def test_a_produced_message_of_an_old_format_is_refused(magic: int) -> None:
    data = messages(old_records(0, 3, magic), magic)
    assert isinstance(validate_header(data, LogConfig(), produce_version=9), RejectedBatch)


def _gzip(data: bytes) -> bytes:
    from moldau.protocol.compression import compress

    return compress(Codec.GZIP, data)
