"""What a leader takes from a client, rewrites or refuses; the codes are those of Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import lz4.frame  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.compression import Codec, compress
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import BytesLike, varint
from moldau.protocol.record_batch import (
    FIELDS,
    HEADER,
    PREFIX_SIZE,
    BatchHeader,
    TimestampType,
    crc_is_valid,
    parse_header,
)
from moldau.protocol.record_builder import Record, append_record, assemble, build_batch, write_checksum
from moldau.protocol.record_reader import records_of
from moldau.protocol.record_stream import RECORD_SIZE_UNLIMITED
from moldau.protocol.record_validation import (
    LOOP_RECOMPRESSED_SIZE_MAX,
    POSTPONED,
    RECORD_ERRORS_MAX,
    RecordError,
    RejectedBatch,
    ValidBatch,
    examine_batch,
    validate_header,
    validate_records,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000
INT64_MAX = (1 << 63) - 1
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


@dataclass(frozen=True, slots=True)
class Rules:
    max_message_bytes: int = 1 << 20
    compression_type: Codec | None = None
    compression_level: int | None = None
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = HOUR
    is_compacted: bool = False
    expanded_bytes_max: int = 100 << 20
    expanded_record_bytes_max: int = RECORD_SIZE_UNLIMITED


PLAIN = Rules()
COMPACTED = Rules(is_compacted=True)
APPEND_TIME = Rules(message_timestamp_type=TimestampType.LOG_APPEND_TIME)


def three(codec: Codec = Codec.NONE, at: int = NOW - 5) -> bytes:
    return build_batch([Record(b"k", b"v%d" % index, at + index) for index in range(3)], codec=codec)


def changed(batch: bytes, **fields: int) -> bytes:
    """The batch with other header fields, its checksum right unless it is what is changed."""
    out = bytearray(batch)
    header = parse_header(out)
    for name, value in fields.items():
        setattr(header, name, value)
    out[:61] = HEADER.pack(*(getattr(header, name) for name in FIELDS))
    if "crc" not in fields:
        write_checksum(out)
    return bytes(out)


def batch_of_body(body: bytes, count: int, codec: Codec = Codec.NONE) -> bytes:
    return assemble((compress(codec, body),), 0, -1, int(codec), count - 1, NOW, NOW, -1, -1, -1, count)


def record_at(offset_delta: int) -> bytes:
    out = bytearray()
    append_record(out, Record(b"k", b"v"), 0, offset_delta)
    return bytes(out)


def validate_batch(
    batch: BytesLike, rules: Rules, now_ms: int, produce_version: int = 13
) -> ValidBatch | RejectedBatch:
    """As the leader does it on the loop; beside the loop it must come to the same."""
    beside = examine_batch(bytearray(batch), rules, now_ms, produce_version)
    header = validate_header(batch, rules, produce_version=produce_version)
    result = header if isinstance(header, RejectedBatch) else validate_records(batch, header, rules, now_ms)
    if isinstance(result, ValidBatch):
        assert isinstance(beside, ValidBatch), beside
        assert bytes(beside.batch) == bytes(result.batch)
    else:
        assert isinstance(beside, RejectedBatch) and beside.error is result.error
        assert beside.record_errors == result.record_errors
    return result


def taken(batch: BytesLike, rules: Rules = PLAIN, now_ms: int = NOW) -> ValidBatch:
    result = validate_batch(batch, rules, now_ms)
    assert isinstance(result, ValidBatch), result
    stored = bytes(result.batch)
    assert crc_is_valid(stored, 0, parse_header(stored))
    assert repr(parse_header(stored)) == repr(result.header)
    return result


def refused(batch: BytesLike, rules: Rules = PLAIN, produce_version: int = 13) -> RejectedBatch:
    result = validate_batch(batch, rules, NOW, produce_version=produce_version)
    assert isinstance(result, RejectedBatch), result
    assert result.message
    return result


# What is taken


@pytest.mark.parametrize("codec", Codec)
def test_a_good_batch_is_kept_as_it_came(codec: Codec) -> None:
    batch = three(codec)
    assert taken(batch).batch is batch
    writable = bytearray(batch)
    assert taken(writable).batch is writable and writable == batch


@pytest.mark.parametrize("codec", Codec)
def test_the_stages_may_be_called_one_by_one(codec: Codec) -> None:
    batch = memoryview(three(codec))
    header = validate_header(batch, PLAIN)
    assert not isinstance(header, RejectedBatch)
    assert validate_records(batch, header, PLAIN, NOW) == (batch, header)


def test_records_without_a_timestamp_are_never_out_of_range() -> None:
    rules = Rules(message_timestamp_before_max_ms=HOUR)
    batch = build_batch([Record(b"a", b"1"), Record(b"b", b"2", NOW)])
    assert taken(batch, rules).batch is batch


def test_any_past_is_in_range_unless_the_topic_bounds_it() -> None:
    for at in (-2, 0, 5, NOW - 100 * HOUR):
        taken(three(at=at))


@pytest.mark.parametrize("bit", [6, 7, 14])
def test_attributes_that_nobody_has_defined_are_kept(bit: int) -> None:
    batch = changed(three(), attributes=1 << bit)
    assert taken(batch).batch is batch


# What is rewritten


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("wrong", [NOW + 999, -1])
def test_a_wrong_max_timestamp_is_put_right(codec: Codec, wrong: int) -> None:
    valid = taken(changed(three(codec), max_timestamp=wrong))
    assert valid.batch == three(codec)


@pytest.mark.parametrize("codec", Codec)
def test_the_topic_may_set_the_time_of_the_append(codec: Codec) -> None:
    came = three(codec, at=NOW + 100 * HOUR)
    valid = taken(came, APPEND_TIME)
    assert valid.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in records_of(valid.batch)] == [NOW] * 3
    assert came == three(codec, at=NOW + 100 * HOUR)


def test_a_writable_buffer_is_patched_in_place() -> None:
    buffer = bytearray(b"--") + three()
    valid = taken(memoryview(buffer)[2:], APPEND_TIME)
    assert valid.batch == buffer[2:]
    assert parse_header(buffer, 2).max_timestamp == NOW


def test_a_producer_that_sets_append_time_is_put_right_where_the_topic_has_create_time() -> None:
    valid = taken(build_batch([Record(b"a", b"1", NOW), Record(b"b", b"2", NOW + 1)], log_append_time_ms=NOW + 9))
    assert valid.header.timestamp_type is TimestampType.CREATE_TIME
    assert (valid.header.max_timestamp, [record.timestamp for record in records_of(valid.batch)]) == (
        NOW + 1,
        [NOW, NOW + 1],
    )


@pytest.mark.parametrize("came", Codec)
@pytest.mark.parametrize("wanted", Codec)
def test_the_topic_may_ask_for_a_codec(came: Codec, wanted: Codec) -> None:
    records = [Record(b"a", b"1" * 50, NOW, (("h", b"x"),), 0), Record(None, None, NOW + 1, (), 1)]
    batch = build_batch(records, codec=came, producer_id=5, producer_epoch=2, base_sequence=7, is_transactional=True)
    valid = taken(batch, Rules(compression_type=wanted))
    header = valid.header
    assert header.codec is wanted and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 7)
    assert list(records_of(valid.batch)) == records
    assert (valid.batch is batch) == (came is wanted)


def test_a_codec_and_the_time_of_the_append_go_together() -> None:
    rules = Rules(compression_type=Codec.GZIP, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    valid = taken(three(), rules)
    assert (valid.header.codec, valid.header.max_timestamp) == (Codec.GZIP, NOW)
    assert [record.timestamp for record in records_of(valid.batch)] == [NOW] * 3


def test_a_batch_may_become_too_large_by_another_codec() -> None:
    batch = build_batch([Record(b"k", bytes(5_000), NOW)], codec=Codec.GZIP)
    rules = Rules(max_message_bytes=1_000, compression_type=Codec.NONE)
    assert refused(batch, rules).error is ErrorCode.MESSAGE_TOO_LARGE


# What is refused for the whole batch

INVALID_RECORD, CORRUPT_MESSAGE = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
UNREADABLE: dict[str, tuple[bytes, ErrorCode]] = {
    "nothing": (b"", INVALID_RECORD),
    "ten bytes": (three()[:10], INVALID_RECORD),
    "a header cut short": (three()[:60], INVALID_RECORD),
    "a batch cut short": (three()[:-1], INVALID_RECORD),
    "two batches": (three() * 2, INVALID_RECORD),
    "a byte after the batch": (three() + b"\0", INVALID_RECORD),
    "magic 0": (changed(three(), magic=0), INVALID_RECORD),
    "magic 1": (changed(three(), magic=1), INVALID_RECORD),
    "a message set of magic 0": (bytes(11) + b"\x0e" + bytes(5) + b"\0" + b"\xff" * 8, INVALID_RECORD),
    "a message set of magic 1": (bytes(11) + b"\x16" + bytes(4) + b"\1" + bytes(9) + b"\xff" * 8, INVALID_RECORD),
    "magic 3": (changed(three(), magic=3), CORRUPT_MESSAGE),
    "magic -1": (changed(three(), magic=-1), CORRUPT_MESSAGE),
    "length -1": (changed(three(), batch_length=-1), CORRUPT_MESSAGE),
    "length 13": (changed(three(), batch_length=13), CORRUPT_MESSAGE),
    "length 48": (changed(three(), batch_length=48), CORRUPT_MESSAGE),
    "a wrong checksum": (changed(three(), crc=5), CORRUPT_MESSAGE),
}


@pytest.mark.parametrize(("batch", "error"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_batch_is_refused_before_the_log_is_asked(batch: bytes, error: ErrorCode) -> None:
    refusal = refused(batch)
    assert (refusal.error, refusal.is_of_log) == (error, False)


@pytest.mark.parametrize("size", range(len(three())))
def test_every_strict_prefix_is_refused(size: int) -> None:
    assert refused(three()[:size]).error is INVALID_RECORD


WRONG_HEADERS = {
    "base offset 1": changed(three(), base_offset=1),
    "base offset -1": changed(three(), base_offset=-1),
    "base offset 1 and a wrong checksum": changed(three(), base_offset=1, crc=5),
    "a control batch": build_batch([Record(b"\0\0\0\1", b"\0\0\0\0\0\0")], is_control=True, producer_id=1),
    "a producer without a sequence": build_batch([Record(b"k", b"v")], producer_id=1, producer_epoch=0),
    "no records": changed(three(), records_count=0, last_offset_delta=-1),
    "fewer records than offsets": changed(three(), records_count=2),
    "more offsets than records": changed(three(), last_offset_delta=5),
    "a negative last offset delta": changed(three(), last_offset_delta=-3),
    "a negative count": changed(three(), records_count=-1),
}


@pytest.mark.parametrize("batch", WRONG_HEADERS.values(), ids=WRONG_HEADERS)
def test_a_header_that_does_not_hold_together_is_refused(batch: bytes) -> None:
    refusal = refused(batch)
    assert (refusal.error, refusal.is_of_log, refusal.record_errors) == (INVALID_RECORD, True, ())


def test_the_size_is_looked_at_before_the_checksum() -> None:
    large = build_batch([Record(b"k", bytes(2_000), NOW)])
    rules = Rules(max_message_bytes=len(large) - 1)
    assert refused(changed(large, crc=5), rules).error is ErrorCode.MESSAGE_TOO_LARGE
    taken(large, Rules(max_message_bytes=len(large)))


@pytest.mark.parametrize("number", [5, 6, 7])
def test_an_unknown_codec_is_refused(number: int) -> None:
    assert refused(changed(three(), attributes=number)).error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", Codec)
def test_zstd_came_with_produce_version_7(codec: Codec) -> None:
    result = validate_batch(three(codec), PLAIN, NOW, produce_version=6)
    if codec is Codec.ZSTD:
        assert isinstance(result, RejectedBatch)
        assert (result.error, result.is_of_log) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, False)
    else:
        assert isinstance(result, ValidBatch)


# What is refused for its records

GOOD = record_at(0)
WRONG_BODIES: dict[str, tuple[bytes, int]] = {
    "fewer records than the header says": (GOOD + record_at(1), 3),
    "more records than the header says": (GOOD + record_at(1), 1),
    "a byte after the records": (GOOD + b"\0", 1),
    "a record longer than it says": (varint(len(GOOD) - 2) + GOOD[1:], 1),
    "a record shorter than it says": (varint(len(GOOD)) + GOOD[1:] + b"\0", 1),
    "a record of a negative size": (varint(-1) + GOOD[1:], 1),
    "a record past the end": (varint(1 << 30) + GOOD[1:], 1),
    "the same offset twice": (GOOD + GOOD, 2),
    "offsets out of order": (GOOD + record_at(2) + record_at(1), 3),
    "an offset that is not 0": (record_at(4), 1),
    "nothing": (b"", 1),
}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(("body", "count"), WRONG_BODIES.values(), ids=WRONG_BODIES)
def test_records_that_no_reader_gets_past_are_refused(body: bytes, count: int, codec: Codec) -> None:
    refusal = refused(batch_of_body(body, count, codec))
    assert (refusal.error, refusal.is_of_log, refusal.record_errors) == (INVALID_RECORD, True, ())


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda _: b"\xde\xad\xbe\xef" * 9, lambda _: b""])
def test_compressed_data_that_does_not_expand_is_refused(codec: Codec, damage: Callable[[bytes], bytes]) -> None:
    stored = damage(compress(codec, GOOD))
    batch = assemble((stored,), 0, -1, int(codec), 0, NOW, NOW, -1, -1, -1, 1)
    assert refused(batch).error is INVALID_RECORD


def test_lz4_blocks_that_java_cannot_read_are_refused() -> None:
    body = build_batch([Record(b"k", bytes(200_000), NOW)])[61:]
    linked = lz4.frame.compress(body, block_linked=True, block_size=4)
    assert refused(assemble((linked,), 0, -1, 3, 0, NOW, NOW, -1, -1, -1, 1)).error is INVALID_RECORD


@pytest.mark.parametrize("wanted", [None, *Codec])
@pytest.mark.parametrize("codec", Codec)
def test_no_large_batch_is_compressed_on_the_event_loop(codec: Codec, wanted: Codec | None) -> None:
    rules = Rules(compression_type=wanted)
    for size, is_large in ((LOOP_RECOMPRESSED_SIZE_MAX - 200, False), (LOOP_RECOMPRESSED_SIZE_MAX, True)):
        batch = build_batch([Record(b"k", bytes(size), NOW)], codec=codec)
        header = validate_header(batch, rules)
        assert isinstance(header, BatchHeader)
        result = validate_records(batch, header, rules, NOW)
        is_compressed = wanted not in (None, Codec.NONE, codec)
        assert (result is POSTPONED) == (is_large and is_compressed)
        assert isinstance(examine_batch(bytearray(batch), rules, NOW, 9), ValidBatch)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_may_expand_only_so_far(codec: Codec) -> None:
    batch = build_batch([Record(b"k", bytes(50_000), NOW)], codec=codec)
    strict, wide = Rules(expanded_bytes_max=50_000), Rules(expanded_bytes_max=50_100)
    assert refused(batch, strict).error is ErrorCode.MESSAGE_TOO_LARGE
    assert taken(batch, wide).batch is batch


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("codec", Codec)
def test_a_record_may_expand_only_so_far(codec: Codec, count: int) -> None:
    """To the byte that Apache Kafka 4.4 takes: a key of one byte, a value of 992, and 8 bytes beside them."""
    rules = Rules(expanded_record_bytes_max=1000)
    batches = {
        size: build_batch([Record(b"k", bytes(size), NOW) for _ in range(count)], codec=codec) for size in (992, 993)
    }
    assert taken(batches[992], rules).batch is batches[992]
    assert isinstance(examine_batch(batches[992], rules, NOW, 9), ValidBatch)
    if codec is Codec.NONE:
        taken(batches[993], rules)
        return
    assert refused(batches[993], rules).error is INVALID_RECORD
    aside = examine_batch(batches[993], rules, NOW, 9)
    assert isinstance(aside, RejectedBatch) and aside.error is INVALID_RECORD


def test_without_a_limit_a_record_expands_to_16_mebibytes_unless_the_topic_takes_larger_batches() -> None:
    batch = build_batch([Record(b"k", bytes(17 << 20), NOW)], codec=Codec.ZSTD)
    aside = examine_batch(batch, PLAIN, NOW, 9)
    assert isinstance(aside, RejectedBatch) and aside.error is INVALID_RECORD
    for rules in (Rules(max_message_bytes=18 << 20), Rules(expanded_record_bytes_max=18 << 20)):
        assert isinstance(examine_batch(batch, rules, NOW, 9), ValidBatch)


@pytest.mark.parametrize("codec", Codec)
def test_each_record_without_a_key_is_named_in_a_compacted_topic(codec: Codec) -> None:
    records = [Record(b"k", b"v", NOW), Record(None, b"v", NOW), Record(b"", b"v", NOW), Record(None, None, NOW)]
    batch = build_batch(records, codec=codec)
    refusal = refused(batch, COMPACTED)
    assert refusal.error is INVALID_RECORD
    sentence = "Compacted topic cannot accept message without key"
    assert refusal.record_errors == (RecordError(1, sentence), RecordError(3, sentence))
    taken(batch)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("off", [-HOUR - 1, HOUR + 1])
def test_each_record_out_of_the_time_bounds_is_named(codec: Codec, off: int) -> None:
    rules = Rules(message_timestamp_before_max_ms=HOUR)
    records = [Record(b"k", b"v", NOW), Record(b"k", b"v", NOW + off), Record(b"k", b"v"), Record(b"k", b"v", NOW)]
    refusal = refused(build_batch(records, codec=codec), rules)
    assert refusal.error is ErrorCode.INVALID_TIMESTAMP
    bounds = f"within [{NOW - HOUR}, {NOW + HOUR}]"
    sentence = f"Timestamp {NOW + off} of message with offset 1 is out of range. The timestamp should be {bounds}"
    assert refusal.record_errors == (RecordError(1, sentence),)


@pytest.mark.parametrize("off", [-HOUR, HOUR])
def test_the_time_bounds_are_inclusive(off: int) -> None:
    taken(build_batch([Record(b"k", b"v", NOW + off)]), Rules(message_timestamp_before_max_ms=HOUR))


def test_a_timestamp_past_64_bits_is_out_of_any_bounds() -> None:
    body = bytearray()
    append_record(body, Record(b"k", b"v"), INT64_MAX, 0)
    batch = assemble((body,), 0, -1, 0, 0, NOW, NOW, -1, -1, -1, 1)
    assert refused(batch, Rules(message_timestamp_after_max_ms=INT64_MAX)).error is ErrorCode.INVALID_TIMESTAMP


def test_a_wrong_time_outweighs_a_missing_key() -> None:
    records = [Record(None, b"v", NOW + 2 * HOUR), Record(b"k", b"v", NOW + 2 * HOUR)]
    refusal = refused(build_batch(records), COMPACTED)
    assert refusal.error is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refusal.record_errors] == [0, 1]
    assert "key" in refusal.record_errors[0].message


@pytest.mark.parametrize("codec", Codec)
def test_a_producer_does_not_set_the_time_of_the_append(codec: Codec) -> None:
    batch = build_batch([Record(b"a", b"1", NOW)] * 2, codec=codec, log_append_time_ms=NOW)
    refusal = refused(batch, APPEND_TIME)
    assert refusal.error is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refusal.record_errors] == [0, 1]


def test_the_list_of_refused_records_ends_somewhere() -> None:
    batch = build_batch([Record(None, b"v", NOW)] * (RECORD_ERRORS_MAX + 5))
    assert len(refused(batch, COMPACTED).record_errors) == RECORD_ERRORS_MAX


# Whatever comes

texts = st.none() | st.binary(max_size=60)
records = st.lists(
    st.tuples(texts, texts, st.integers(-1, NOW)).map(lambda fields: Record(*fields)), min_size=1, max_size=5
)
rules = st.builds(
    Rules,
    compression_type=st.sampled_from([None, *Codec]),
    message_timestamp_type=st.sampled_from(TimestampType),
    is_compacted=st.booleans(),
)
damage = st.lists(st.tuples(st.integers(16, 10_000), st.integers(0, 255)), max_size=3)


@given(codec=st.sampled_from(Codec), given_records=records, rules=rules, damage=damage)
def test_what_is_taken_is_read_whatever_was_sent(
    codec: Codec, given_records: list[Record], rules: Rules, damage: list[tuple[int, int]]
) -> None:
    batch = bytearray(build_batch(given_records, codec=codec))
    for position, value in damage:
        batch[position % (len(batch) - 16) + 16] = value
    write_checksum(batch)
    result = validate_batch(bytes(batch), rules, NOW)
    if isinstance(result, ValidBatch):
        stored = bytes(result.batch)
        header = parse_header(stored)
        assert crc_is_valid(stored, 0, header)
        assert [record.offset for record in records_of(stored)] == list(range(header.records_count))
    else:
        assert result.message


@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    assert isinstance(validate_batch(data, PLAIN, NOW), RejectedBatch)


def test_the_leader_needs_nothing_but_the_prefix_after_that() -> None:
    valid = taken(three(Codec.ZSTD))
    assert bytes(valid.batch)[PREFIX_SIZE:] == three(Codec.ZSTD)[PREFIX_SIZE:]
