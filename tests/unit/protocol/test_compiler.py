"""The compiler on declarations that use all of the language, also if no message of Kafka's does so yet."""

from __future__ import annotations

import linecache
from typing import Annotated, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.compiler import decode, decoder_of, encode, encoder_of
from moldau.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.primitives import Chunk, MalformedMessage
from moldau.protocol.schema import (
    Bytes,
    Field,
    Float64,
    Int8,
    Int32,
    Int64,
    Records,
    UInt16,
    UInt32,
    Uuid,
    WireType,
    empty,
    fields_in,
    message,
    nullable,
    since,
    struct,
    tag,
)
from tests.unit.protocol.facts.reading import java_bytes
from tests.unit.protocol.facts.sampling import default_message, sample


@struct
class Inner:
    number: Int64 = 0
    name: Annotated[str | None, nullable()] = None
    extra: Annotated[list[Int32] | None, since(1), nullable(1), tag(0)] = None


@struct
class Middle:
    inner: Annotated[Inner | None, nullable()] = None
    inners: Annotated[list[Inner] | None, nullable()] = empty()
    best: Annotated[Inner | None, since(1), tag(3)] = None


@message(versions="0-1", flexible="1+")
class Everything:
    flag: bool = False
    small: Int8 = 0
    port: UInt16 = 0
    size: UInt32 = 0
    ratio: Float64 = 0.0
    id: Uuid = bytes(16)
    ids: Annotated[list[Uuid] | None, nullable()] = empty()
    flags: list[bool] = empty()
    numbers: Annotated[list[Int64] | None, nullable()] = empty()
    words: Annotated[list[str] | None, nullable()] = empty()
    blobs: Annotated[list[Bytes] | None, nullable()] = empty()
    blob: Annotated[Bytes | None, nullable()] = None
    records: Annotated[Records | None, nullable()] = None
    middle: Annotated[Middle | None, nullable()] = None
    middles: Annotated[list[Middle] | None, nullable()] = empty()
    note: Annotated[str | None, since(1), nullable(1), tag(7)] = "default"
    notes: Annotated[list[Middle] | None, since(1), nullable(1), tag(2)] = empty()
    sum: Annotated[Int32, since(1), tag(300)] = 5
    raw: Annotated[Bytes, since(1), tag(1)] = b"raw"


RANGES = {
    WireType.INT8: (-128, 127),
    WireType.INT32: (-(1 << 31), (1 << 31) - 1),
    WireType.INT64: (-(1 << 63), (1 << 63) - 1),
}
VALUES: dict[WireType, st.SearchStrategy[object]] = {
    WireType.BOOL: st.booleans(),
    **{kind: st.integers(*bounds) for kind, bounds in RANGES.items()},
    WireType.UINT16: st.integers(0, 0xFFFF),
    WireType.UINT32: st.integers(0, 0xFFFFFFFF),
    WireType.FLOAT64: st.floats(allow_nan=False),
    WireType.UUID: st.binary(min_size=16, max_size=16),
    WireType.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=150),
    WireType.BYTES: st.binary(max_size=150),
    WireType.RECORDS: st.sampled_from((0, 1, 126, 127, 16_382, 16_383, 70_000)).map(bytes),
}


def messages(cls: type[object], version: int) -> st.SearchStrategy[object]:
    plain, tagged, absent = fields_in(cls, version)
    values = {field.name: values_of(field, version) for field in plain + tagged}
    defaults = {field.name: st.just(getattr(default_message(cls), field.name)) for field in absent}
    return st.builds(cls, **values, **defaults)


def values_of(field: Field, version: int) -> st.SearchStrategy[object]:
    value = messages(field.struct, version) if field.struct is not None else VALUES[cast("WireType", field.kind)]
    if field.is_array:
        value = st.lists(value, max_size=3)
    # A tagged struct of defaults is not sent, and read as None.
    value = value.filter(
        lambda drawn: field.tag is None or field.struct is None or drawn != default_message(field.struct)
    )
    return st.none() | value if version in field.nullable else value


@pytest.mark.parametrize("version", [0, 1])
def test_everything_is_read_as_written(version: int) -> None:
    @settings(deadline=None)
    @given(messages(Everything, version))
    def check(drawn: object) -> None:
        written = encode(drawn, version)
        assert decode(Everything, written, version) == drawn
        for size in {0, len(written) // 3, len(written) // 2, len(written) - 1}:
            with pytest.raises(MalformedMessage):
                decode(Everything, written[:size], version)

    check()


def test_a_default_is_not_written_in_the_tagged_section() -> None:
    assert encode(Everything(), 1).endswith(b"\x01\0")
    assert encode(Everything(sum=6), 1).endswith(b"\x01" + b"\xac\x02\x04\0\0\0\x06")
    assert encode(Everything(note=None, raw=b""), 1).endswith(b"\x02" + b"\x01\x01\x01" + b"\x07\x01\0")


# A tagged struct that may be null, as in the reference's record of a consumer group's member


@struct
class ClassicProtocol:
    name: str
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = empty()


@message(key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: Annotated[str | None, nullable()] = ""
    rack_id: Annotated[str | None, nullable()] = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = empty()
    subscribed_topic_regex: Annotated[str | None, nullable()] = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: Annotated[str | None, nullable()] = ""
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, nullable(), tag(0)] = None


def test_a_tagged_struct_that_may_be_null_is_written_and_read_as_by_java() -> None:
    java = java_bytes()["ConsumerGroupMemberMetadataValue", 0]
    for start, written in zip((0, 4), java.samples, strict=True):
        value = cast("ConsumerGroupMemberMetadataValue", sample(ConsumerGroupMemberMetadataValue, 0, start))
        assert (value.classic_member_metadata is None) == (start == 0)
        assert encode(value, 0) == written
        assert decode(ConsumerGroupMemberMetadataValue, written, 0) == value
    read = decode(ConsumerGroupMemberMetadataValue, java.default, 0)
    assert read.classic_member_metadata == ClassicMemberMetadata()
    assert encode(read, 0) == java.default


# The short way of writing one of many structs, and the long one


@pytest.mark.parametrize("records_size", [0, 1, 126, 127, 16_382, 16_383, 2_097_150, 2_097_151])
@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_parts_that_are_mostly_absent_may_be_present_in_any_mixture(records_size: int, version: int) -> None:
    partitions = [
        PartitionData(
            partition_index=index,
            high_watermark=index,
            aborted_transactions=aborted,
            current_leader=leader,
            diverging_epoch=diverging,
            records=records,
        )
        for index, (aborted, leader, diverging, records) in enumerate(
            (aborted, leader, diverging, records)
            for aborted in (None, [], [AbortedTransaction(producer_id=5, first_offset=6)])
            for leader in (None, LeaderIdAndEpoch(leader_id=4))
            for diverging in (None, EpochEndOffset(epoch=1, end_offset=2))
            for records in (None, bytes(records_size))
            if version >= 12 or (leader is None and diverging is None)
        )
    ]
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic="" if version > 12 else "t", partitions=partitions)]
    )
    assert decode(FetchResponse, encode(response, version), version) == response


def test_a_tagged_struct_of_defaults_is_not_sent() -> None:
    plain = FetchResponse(
        responses=[FetchableTopicResponse(partitions=[PartitionData(partition_index=0, high_watermark=0)])]
    )
    tagged = FetchResponse(
        responses=[FetchableTopicResponse(partitions=[PartitionData(partition_index=0, high_watermark=0)])]
    )
    tagged.responses[0].partitions[0].current_leader = LeaderIdAndEpoch()
    assert encode(tagged, 12) == encode(plain, 12)


# What is copied and what is not


def produce(records: bytes) -> ProduceRequest:
    part = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=1, timeout_ms=5, topic_data=[TopicProduceData(name="t", partition_data=[part])])


def test_records_are_a_view_into_the_buffer() -> None:
    buffer = bytearray(encode(produce(b"old"), 9))
    request, _ = decoder_of(ProduceRequest, 9)(memoryview(buffer), 0)
    records = request.topic_data[0].partition_data[0].records
    buffer[buffer.index(b"old") : buffer.index(b"old") + 3] = b"new"
    assert records is not None and bytes(records) == b"new"


def test_bytes_are_copied_out_of_the_buffer() -> None:
    buffer = bytearray(encode(Everything(blob=b"old"), 0))
    read, _ = decoder_of(Everything, 0)(memoryview(buffer), 0)
    buffer[:] = bytes(len(buffer))
    assert read.blob == b"old"


def test_records_are_written_as_they_are() -> None:
    class Region:
        def __len__(self) -> int:
            return 1000

    region = Region()
    partition = PartitionData(partition_index=0, high_watermark=0, records=region)
    chunks: list[Chunk] = []
    encoder_of(FetchResponse, 12)(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), chunks)
    assert sum(chunk is region for chunk in chunks) == 1


# The compiled functions


def test_a_codec_is_compiled_once() -> None:
    assert decoder_of(ProduceRequest, 9) is decoder_of(ProduceRequest, 9)
    assert encoder_of(ProduceRequest, 9) is not encoder_of(ProduceRequest, 8)


def test_a_version_that_is_not_declared_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="ProduceRequest has no version 2"):
        decoder_of(ProduceRequest, 2)


def test_a_decoder_starts_where_it_is_told() -> None:
    written = encode(produce(b"records"), 9)
    request, position = decoder_of(ProduceRequest, 9)(b"header" + written + b"more", 6)
    assert position == 6 + len(written)
    assert encode(request, 9) == written


def test_the_source_is_at_hand_for_tracebacks() -> None:
    decoder_of(ProduceRequest, 9)
    lines = linecache.getlines("<moldau decode_ProduceRequest_v9>")
    assert lines[0] == "def decode_ProduceRequest_v9(buf, pos):\n"
