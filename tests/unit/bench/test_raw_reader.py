"""The raw reader finds the records of a reply, and where the next fetch begins."""

from __future__ import annotations

import pytest

from bench.frames import FETCH_VERSION
from bench.raw_reader import end_of_batches, records_in
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.protocol.record_builder import Record, build_batch


def batch(first: int, count: int) -> bytes:
    stored = bytearray(build_batch([Record(None, b"x" * 200, 1000)] * count))
    stored[:8] = first.to_bytes(8)
    return bytes(stored)


def reply(records: bytes | None, error: ErrorCode) -> memoryview:
    data = PartitionData(partition_index=0, error_code=error, high_watermark=99, records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="cold", partitions=[data])])
    return memoryview(bytes(9) + encode(response, FETCH_VERSION))


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR])
@pytest.mark.parametrize("records", [None, b"", b"r" * 10, b"r" * 70_000])
def test_the_records_of_a_reply_are_found(records: bytes | None, error: ErrorCode) -> None:
    found = records_in(reply(records, error), "cold")
    assert found[0] is error
    assert bytes(found[1]) == (records or b"")


def test_the_next_fetch_begins_behind_the_last_whole_batch() -> None:
    one, other = batch(10, 2), batch(12, 3)
    assert end_of_batches(memoryview(one + other), 10) == (len(one) + len(other), 15)
    assert end_of_batches(memoryview(one + other[:-1]), 10) == (len(one), 12)
    assert end_of_batches(memoryview(one[:20]), 10) == (0, 10)
