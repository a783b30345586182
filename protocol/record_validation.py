"""Validating a client's batch before a leader appends it.

There are two stages, in Kafka's order: the header with the checksum, then the records. A batch with a valid header and
checksum can still hold records that stop every consumer, so both stages are needed. The choice and its figures are in
docs/decisions/0003-what-is-checked-before-append.md.

A refusal is a value (`RejectedBatch`). If the batch as a whole is wrong, Kafka answers with an error code alone;
here the answer has a message as well. DIVERGES: to some invalid batches Kafka answers UNKNOWN_SERVER_ERROR (an unknown
codec, compressed data that cannot be decompressed, compressed records out of order); some it appends although consumers
fail on them (wrong record sizes in a compressed batch, offsets out of order in a plain one, sizes below -1, bytes after
the batch or after its compressed data). Here each of them is refused with the error and the message that name its
fault.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from moldau.protocol.compression import Codec, DecompressedSizeExceeded, RecordSizeExceeded, compress, decompress
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import BytesLike, MalformedMessage, crc32c
from moldau.protocol.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CODECS,
    CONTROL_BIT,
    CRC_POSITION,
    HEADER_SIZE,
    INT16,
    INT32,
    INT64,
    KEY_IS_NULL,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    OFFSETS_DIFFER,
    TIMESTAMP_TYPE_BIT,
    UINT32,
    BatchHeader,
    TimestampType,
    crc_is_valid,
    largest_record,
    parse_header,
    walk_records,
)
from moldau.protocol.record_builder import assemble
from moldau.protocol.record_reader import decode_records, records_of
from moldau.protocol.record_stream import RECORD_SIZE_MAX, RECORD_SIZE_UNLIMITED, refuse_large_record, walk_batch

LOOP_EXPANDED_SIZE_MAX = 4 << 20
"""The decompressed size (bytes) up to which a compressed batch is validated on the event loop, if it has at most
`LOOP_RECORDS_MAX` records. A larger batch is validated in an executor thread, so that other connections do not wait for
it."""
LOOP_RECOMPRESSED_SIZE_MAX = 64 << 10
"""The decompressed size (bytes) up to which a batch is compressed with the topic's codec on the event loop."""
LOOP_RECORDS_MAX = 50_000
KEYLESS = "Compacted topic cannot accept message without key"
RECORD_ERRORS_MAX = 1000
"""The most invalid records that a response lists. DIVERGES: Kafka lists all of them, even if there are millions."""
LEGACY_LENGTH_MIN = 14
"""The smallest length field that a message of magic 0 can have. Kafka refuses a smaller length before it looks at the
magic."""
PRODUCE_VERSION_OF_ZSTD = 7
INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1

CREATE_TIME = TimestampType.CREATE_TIME
ZSTD = int(Codec.ZSTD)


class AppendRules(Protocol):
    """The settings of a topic that validation needs, under the names of the log's configuration."""

    @property
    def max_message_bytes(self) -> int: ...
    @property
    def compression_type(self) -> Codec | None:
        """The codec to which the topic converts batches; None stands for `producer`: a batch keeps its codec."""

    @property
    def compression_level(self) -> int | None: ...
    @property
    def message_timestamp_type(self) -> TimestampType: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...
    @property
    def is_compacted(self) -> bool: ...
    @property
    def expanded_bytes_max(self) -> int:
        """The most bytes that the decompressed records of a batch may have."""

    @property
    def expanded_record_bytes_max(self) -> int:
        """The most bytes that one decompressed record of a compressed batch may have."""


class RecordError(NamedTuple):
    """Why a record makes its batch invalid: the index of the record in the batch, and a sentence."""

    batch_index: int
    message: str


class RejectedBatch(NamedTuple):
    """The error with which a batch is refused, with a message and the invalid records."""

    error: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()
    is_of_log: bool = True
    """Whether the response has the log start offset of the partition. It is false, and the response has -1, for a fault
    that Kafka finds before it reads the log start offset."""
    is_postponed: bool = False
    """Whether the batch is only too large to be validated on the event loop. An executor thread then validates it
    (`examine_batch`)."""


class ValidBatch(NamedTuple):
    """A batch that may be appended: the bytes of the client or rewritten bytes, and their header."""

    batch: BytesLike
    header: BatchHeader


def examine_batch(
    batch: BytesLike, rules: AppendRules, now_ms: int, produce_version: int
) -> ValidBatch | RejectedBatch:
    """Validate header and records of a batch in one call, on an executor thread and in bounded memory.

    The result is that of `validate_records`. The bytes of `batch` may be changed in place.
    """
    header = validate_header(batch, rules, produce_version=produce_version)
    if isinstance(header, RejectedBatch):
        return header
    return validate_records(batch, header, rules, now_ms, is_beside_loop=True)


def validate_header(
    batch: BytesLike, rules: AppendRules, *, produce_version: int = PRODUCE_VERSION_OF_ZSTD
) -> BatchHeader | RejectedBatch:
    """Validate the header of the one batch that fills the buffer: lengths, checksum, codec and counts. Returns the
    header, or the refusal. It is the first of the two stages."""
    try:
        header = parse_header(batch)
    except MalformedMessage:
        return refusal_of_unreadable(batch)
    size = header.batch_length + LOG_OVERHEAD
    if size != len(batch):
        return refusal_of_request("exactly one whole batch is expected for a partition")
    attributes = header.attributes
    codec = attributes & CODEC_MASK
    if codec == ZSTD and produce_version < PRODUCE_VERSION_OF_ZSTD:
        message = f"zstd needs produce version {PRODUCE_VERSION_OF_ZSTD}, this is {produce_version}"
        return RejectedBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message, is_of_log=False)
    if header.base_offset != 0:
        return refusal_of_batch(f"the base offset is {header.base_offset} instead of 0")
    if size > rules.max_message_bytes:
        return refusal_of_size(size, rules)
    if not crc_is_valid(batch, 0, header):
        message = f"the checksum of the batch is not {header.crc:#010x}"
        return RejectedBatch(ErrorCode.CORRUPT_MESSAGE, message, is_of_log=False)
    if codec >= len(CODECS):
        return RejectedBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type id {codec}")
    count = header.records_count
    if count <= 0 or header.last_offset_delta != count - 1:
        return refusal_of_batch(f"{count} records do not go with last offset delta {header.last_offset_delta}")
    if attributes & CONTROL_BIT:
        return refusal_of_batch("clients write no control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return refusal_of_batch(f"base sequence {header.base_sequence} in a batch of producer {header.producer_id}")
    return header


def validate_records(
    batch: BytesLike, header: BatchHeader, rules: AppendRules, now_ms: int, *, is_beside_loop: bool = False
) -> ValidBatch | RejectedBatch:
    """Validate the records of a batch whose header is valid. It is the second of the two stages. The batch is
    rewritten, if possible in place, if the topic's settings require it.

    The result has the given `header`, whose fields are set to those of the rewritten batch. Unless `is_beside_loop`,
    the result for a large batch is `POSTPONED`.
    """
    attributes = header.attributes
    codec = rules.compression_type
    is_slow = codec not in (None, Codec.NONE, attributes & CODEC_MASK)
    size_max = rules.expanded_bytes_max
    body: BytesLike | None = None
    try:
        if is_beside_loop:
            record_size_max = _record_size_max(rules) if attributes & CODEC_MASK else len(batch)
            flags, low, high = walk_batch(batch, header, size_max=size_max, record_size_max=record_size_max)
        elif header.records_count > LOOP_RECORDS_MAX or (is_slow and header.size > LOOP_RECOMPRESSED_SIZE_MAX):
            return POSTPONED
        elif attributes & CODEC_MASK:
            size_max = min(size_max, LOOP_RECOMPRESSED_SIZE_MAX if is_slow else LOOP_EXPANDED_SIZE_MAX)
            body = decompress(CODECS[attributes & CODEC_MASK], memoryview(batch)[HEADER_SIZE:], size_max=size_max)
            flags, low, high = walk_records(body, 0, len(body), header.records_count)
            if len(body) > rules.expanded_record_bytes_max:
                refuse_large_record(largest_record(bytes(body), header.records_count), rules.expanded_record_bytes_max)
        else:
            body = memoryview(batch)[HEADER_SIZE:]
            flags, low, high = walk_records(batch, HEADER_SIZE, len(batch), header.records_count)
    except DecompressedSizeExceeded as exceeded:
        if size_max < rules.expanded_bytes_max:
            return POSTPONED
        return RejectedBatch(ErrorCode.MESSAGE_TOO_LARGE, str(exceeded))
    except RecordSizeExceeded as exceeded:  # Not left to the next clause: compiled, it takes the base class alone.
        return refusal_of_batch(str(exceeded))
    except MalformedMessage as malformed:
        return refusal_of_batch(str(malformed))
    if flags & OFFSETS_DIFFER:
        return refusal_of_batch("the offsets of the records are not consecutive from 0")
    base_timestamp = header.base_timestamp
    if rules.message_timestamp_type is CREATE_TIME:
        max_timestamp = max(base_timestamp + high, NO_TIMESTAMP)
        is_suspect = (
            max_timestamp > now_ms + rules.message_timestamp_after_max_ms
            or max_timestamp > INT64_MAX
            or base_timestamp + low < now_ms - rules.message_timestamp_before_max_ms
        )
        new_attributes = attributes & ~TIMESTAMP_TYPE_BIT
    else:
        max_timestamp = now_ms
        is_suspect = attributes & TIMESTAMP_TYPE_BIT != 0
        new_attributes = attributes | TIMESTAMP_TYPE_BIT
    if is_suspect or (flags & KEY_IS_NULL and rules.is_compacted):
        refusal = refusal_of_records(batch, body, header, rules, now_ms)
        if refusal is not None:
            return refusal
    if codec is not None and codec != attributes & CODEC_MASK:
        header.attributes = new_attributes & ~CODEC_MASK | codec
        header.max_timestamp = max_timestamp
        if body is None:
            # For a topic with its own codec all decompressed records are held in memory.
            body = decompress(CODECS[attributes & CODEC_MASK], memoryview(batch)[HEADER_SIZE:], size_max=size_max)
        return recompress_batch(body, header, codec, rules)
    if max_timestamp != header.max_timestamp or new_attributes != attributes:
        header.attributes = new_attributes
        header.max_timestamp = max_timestamp
        return with_patched_header(batch, header)
    return ValidBatch(batch, header)


# Rewriting


def with_patched_header(batch: BytesLike, header: BatchHeader) -> ValidBatch:
    """Write the attributes and the max timestamp of `header` into the batch, and compute its checksum again. Bytes that
    cannot be written are copied first."""
    view = memoryview(batch)
    if view.readonly:
        view = memoryview(bytearray(view))
    INT16.pack_into(view, ATTRIBUTES_POSITION, header.attributes)
    INT64.pack_into(view, MAX_TIMESTAMP_POSITION, header.max_timestamp)
    header.crc = crc32c(view[ATTRIBUTES_POSITION:], 0)
    UINT32.pack_into(view, CRC_POSITION, header.crc)
    return ValidBatch(view, header)


def recompress_batch(
    body: BytesLike, header: BatchHeader, codec: Codec, rules: AppendRules
) -> ValidBatch | RejectedBatch:
    """Compress the records with the topic's codec. The result is refused if it is larger than max.message.bytes."""
    batch = assemble(
        (compress(codec, body, rules.compression_level),),
        header.base_offset,
        header.partition_leader_epoch,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.records_count,
    )
    if len(batch) > rules.max_message_bytes:
        return refusal_of_size(len(batch), rules)
    return ValidBatch(batch, parse_header(batch))


# Rejections

POSTPONED = RejectedBatch(ErrorCode.MESSAGE_TOO_LARGE, "the batch is too large to be validated now", is_postponed=True)


def refusal_of_batch(message: str) -> RejectedBatch:
    return RejectedBatch(ErrorCode.INVALID_RECORD, message)


def refusal_of_request(message: str) -> RejectedBatch:
    return RejectedBatch(ErrorCode.INVALID_RECORD, message, is_of_log=False)


def refusal_of_size(size: int, rules: AppendRules) -> RejectedBatch:
    """Refuse a batch that is larger than max.message.bytes allows."""
    message = f"a batch of {size} bytes is above max.message.bytes ({rules.max_message_bytes})"
    return RejectedBatch(ErrorCode.MESSAGE_TOO_LARGE, message, is_of_log=False)


def refusal_of_unreadable(batch: BytesLike) -> RejectedBatch:
    """The refusal of bytes that are not a batch of magic 2. Length, magic and end are checked in Kafka's order."""
    size = len(batch)
    length = INT32.unpack_from(batch, LOG_OVERHEAD - INT32.size)[0] if size >= LOG_OVERHEAD else None
    magic = batch[MAGIC_POSITION] if size > MAGIC_POSITION else None
    if length is not None and length < LEGACY_LENGTH_MIN:
        return RejectedBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch of length {length}", is_of_log=False)
    if magic is not None and magic > MAGIC:
        return RejectedBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch of magic {magic}", is_of_log=False)
    if length is None or magic is None or length + LOG_OVERHEAD > size:
        return refusal_of_request("exactly one whole batch is expected for a partition")
    if magic < MAGIC:
        return refusal_of_request(f"message format {magic} is no longer written, batches have magic {MAGIC}")
    return RejectedBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch of length {length}, below {LENGTH_MIN}", is_of_log=False)


def _record_size_max(rules: AppendRules) -> int:
    """The most bytes that one record of a compressed batch may have.

    DIVERGES: a record of more than 16 MiB is refused if `max.decompressed.message.bytes` has its default and
    `max.message.bytes` is smaller. Apache Kafka 4.4 sets no limit there, so that a batch of 1 MiB may take 1 GiB.
    """
    if rules.expanded_record_bytes_max >= RECORD_SIZE_UNLIMITED:
        return max(RECORD_SIZE_MAX, rules.max_message_bytes)
    return rules.expanded_record_bytes_max


def refusal_of_records(
    batch: BytesLike, body: BytesLike | None, header: BatchHeader, rules: AppendRules, now_ms: int
) -> RejectedBatch | None:
    """Find the invalid records of a batch, and return the refusal that lists them; None if no record is invalid. A
    record without a timestamp is valid. If `body` is None, the batch is decompressed again, piece by piece."""
    errors: list[RecordError] = []
    code = ErrorCode.INVALID_RECORD
    needs_keys = rules.is_compacted
    is_create_time = rules.message_timestamp_type is CREATE_TIME
    earliest = max(now_ms - rules.message_timestamp_before_max_ms, INT64_MIN)
    latest = min(now_ms + rules.message_timestamp_after_max_ms, INT64_MAX)
    says_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
    if is_create_time:
        # The timestamps of the records count, not the maximum in the producer's header.
        header.attributes &= ~TIMESTAMP_TYPE_BIT
    if body is None:
        records = records_of(batch, 0, header, size_max=rules.expanded_bytes_max)
    else:
        records = decode_records(bytes(body), header)
    for index, record in enumerate(records):
        if needs_keys and record.key is None:
            errors.append(RecordError(index, KEYLESS))
        elif not is_create_time:
            if says_append_time:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append(RecordError(index, "a producer does not set log append time"))
        elif record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest:
            code = ErrorCode.INVALID_TIMESTAMP
            said = f"Timestamp {record.timestamp} of message with offset {index} is out of range."
            errors.append(RecordError(index, f"{said} The timestamp should be within [{earliest}, {latest}]"))
        if len(errors) == RECORD_ERRORS_MAX:
            break
    if not errors:
        return None
    if code is ErrorCode.INVALID_TIMESTAMP:
        return RejectedBatch(code, "One or more records have been rejected due to invalid timestamp", tuple(errors))
    shown = ", ".join(f"RecordError(batchIndex={each.batch_index}, message='{each.message}')" for each in errors[:3])
    message = f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing"
    return RejectedBatch(code, f"{message} the first three errors at most: [{shown}]", tuple(errors))
