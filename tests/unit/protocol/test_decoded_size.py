"""What a request may decode into is bounded: what a large cluster asks passes, what only fills memory does not."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from moldau.protocol.compiler import _CountedDecoderSource, decode, encode, request_decoder_of
from moldau.protocol.decoded_size import DECODED_SIZE_MAX, uncounted_size
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.join_group import JoinGroupRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest
from moldau.protocol.primitives import MalformedMessage, read_text_size, uvarint
from tests.unit.protocol.facts.reading import declared, java_bytes, served_versions

pytestmark = pytest.mark.slow

REQUESTS = {name: cls for name, cls in declared().items() if name.endswith("Request")}
LARGE_CLUSTER = 100_000


@pytest.mark.parametrize("cls", REQUESTS.values(), ids=REQUESTS)
def test_the_counting_decoder_reads_the_same(cls: type[object]) -> None:
    for version in served_versions(cls):
        counting = _CountedDecoderSource(cls, version).compile()
        for whole in java_bytes()[cls.__name__, version].samples:
            assert callable(counting)
            assert counting(memoryview(whole), 0) == (decode(cls, whole, version), len(whole))


def fetch_of(partitions: int, per_topic: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=1,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic=f"topic-{start}",
                topic_id=bytes(16),
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=index << 32,
                        log_start_offset=index << 16,
                        partition_max_bytes=1 << 20,
                        current_leader_epoch=1000,
                    )
                    for index in range(start, start + per_topic)
                ],
            )
            for start in range(0, partitions, per_topic)
        ],
    )


@pytest.mark.parametrize("per_topic", [1, 1000])
@pytest.mark.parametrize("version", [12, 17])
def test_a_fetch_of_a_hundred_thousand_partitions_is_read(version: int, per_topic: int) -> None:
    data = memoryview(encode(fetch_of(LARGE_CLUSTER, per_topic), version))
    assert len(data) > uncounted_size(FetchRequest, version), "counted"
    request, _ = request_decoder_of(FetchRequest, version)(data, 0)
    assert sum(len(topic.partitions) for topic in request.topics) == LARGE_CLUSTER


def test_the_estimate_is_above_what_is_measured() -> None:
    data = memoryview(encode(fetch_of(LARGE_CLUSTER // 20, 1), 12))
    decoder = request_decoder_of(FetchRequest, 12)
    tracemalloc.start()
    kept = decoder(data, 0)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size * 20 < DECODED_SIZE_MAX, kept


FLOODS: dict[str, tuple[type[object], int, Callable[[int], bytes]]] = {
    "topics without a name": (MetadataRequest, 1, lambda count: count.to_bytes(4, "big") + b"\0\0" * count),
    "groups of nothing": (OffsetFetchRequest, 8, lambda count: uvarint(count + 1) + b"\1\1\0" * count + b"\0\0"),
    "numbers": (
        OffsetFetchRequest,
        5,
        lambda count: b"\0\0\0\0\0\1\0\0" + count.to_bytes(4, "big") + b"\1\2\3\4" * count,
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_malformed_before_it_takes_more_than_its_bound(name: str) -> None:
    cls, version, write = FLOODS[name]
    data = memoryview(write(4_000_000))
    decoder = request_decoder_of(cls, version)
    tracemalloc.start()
    with pytest.raises(MalformedMessage, match="decodes into more than"):
        decoder(data, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < DECODED_SIZE_MAX


def test_tags_that_are_skipped_count_although_they_take_no_memory() -> None:
    topic = bytes(16) + b"\0" + uvarint(1000) + b"\x09\0" * 1000
    data = uvarint(101) + topic * 100 + b"\0\0\0"
    with pytest.raises(MalformedMessage, match="decodes into more than"):
        request_decoder_of(MetadataRequest, 12)(memoryview(data), 0)


def test_a_null_array_gives_nothing_back() -> None:
    null = (-(1 << 31)).to_bytes(4, "big", signed=True)
    counting = _CountedDecoderSource(MetadataRequest, 1).compile()
    assert callable(counting)
    request, _ = counting(null, 0)
    assert request.topics is None


def test_what_members_say_of_themselves_is_bounded() -> None:
    size = DECODED_SIZE_MAX + 1
    data = (
        b"\0\1g"
        + bytes(8)
        + b"\0\0"
        + b"\0\1c"
        + (1).to_bytes(4, "big")
        + b"\0\1p"
        + size.to_bytes(4, "big")
        + bytes(size)
    )
    with pytest.raises(MalformedMessage, match="decodes into more than"):
        request_decoder_of(JoinGroupRequest, 1)(memoryview(data), 0)


def test_a_string_has_at_most_what_an_int16_can_say() -> None:
    assert read_text_size(uvarint(0x8000), 0) == (0x8000, 3)
    with pytest.raises(MalformedMessage, match="a string of 32768 bytes"):
        read_text_size(uvarint(0x8001), 0)
    topic = bytes(16) + uvarint(0x8001) + b"x" * 0x8000 + b"\0"
    with pytest.raises(MalformedMessage, match="a string"):
        decode(MetadataRequest, b"\2" + topic + b"\0\0\0", 12)
