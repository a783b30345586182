"""The table `batches`: a row for each record batch, read from its header alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from moldau.protocol.compression import Codec
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    FIELDS,
    HEADER,
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    OLD_MESSAGE_SIZE_MIN,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    may_be_old_message,
    parse_header,
)
from moldau.tables.decoding.coverage import OffsetCoverage
from moldau.tables.decoding.times import microseconds_of
from moldau.tables.origins.port import upgrade_old_message
from moldau.tables.refusals import DataLost, SegmentReplaced
from moldau.tables.views.records import RecordsReader
from moldau.tables.views.schemas import BATCHES, arrow_schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa  # type: ignore[import-untyped]
    from numpy.typing import NDArray

    from moldau.tables.origins.port import SegmentFile, Slice, Task

TASK_SIZE: Final = 2 << 30
"""The bytes of segments for one task, which reads only their headers."""
READ_SIZE: Final = 8 << 10
"""The bytes that are read at once: several small batches, or the header of a large one."""
ROWS_MAX: Final = 1 << 16
"""The most rows of one Arrow batch."""
PLACE: Final = Struct(">qi11xi30xi")
"""The struct of a batch header for its base offset, length, last offset delta and number of records."""
HEADER_FIELDS: Final = [
    ("base_offset", ">i8"),
    ("batch_length", ">i4"),
    ("leader_epoch", ">i4"),
    ("magic", "i1"),
    ("crc", ">u4"),
    ("attributes", ">i2"),
    ("last_offset_delta", ">i4"),
    ("base_timestamp", ">i8"),
    ("max_timestamp", ">i8"),
    ("producer_id", ">i8"),
    ("producer_epoch", ">i2"),
    ("base_sequence", ">i4"),
    ("records_count", ">i4"),
]
"""The fields of a batch header, by which numpy reads many headers at once; the layout is in
`moldau.protocol.record_batch`."""


class BatchesReader(RecordsReader):
    """The reader of the table `batches`. A batch that crosses the end of the wanted offsets is shown whole."""

    def tasks(self) -> Sequence[Task]:
        return self.plan(TASK_SIZE).tasks

    def read_task(self, task: Task) -> Iterator[pa.RecordBatch]:
        for each in task:
            try:
                for positions, headers in headers_of(each):
                    batch = batch_rows(each, positions, headers)
                    if batch.num_rows:
                        yield batch.select(self._columns)
            except DataLost as gone:
                self.report(gone)


def headers_of(wanted: Slice) -> Iterator[tuple[list[int], bytes]]:
    """Yield the batch headers of a slice, some thousands at a time: their positions in the file, and the bytes of all
    headers joined.

    Raises `MalformedMessage`, which names file and position, `DataLost` and OSError.
    """
    file = wanted.source.open(wanted)
    coverage = OffsetCoverage(wanted)
    try:
        positions: list[int] = []
        headers: list[bytes] = []
        position = chunk_position = wanted.start_position
        chunk: BytesLike = b""
        while position + OLD_MESSAGE_SIZE_MIN <= wanted.end_position:
            inside = position - chunk_position
            if inside + HEADER_SIZE > len(chunk):
                chunk = file.pread(min(READ_SIZE, wanted.end_position - position), position)
                chunk_position, inside = position, 0
            header = bytes(chunk[inside : inside + HEADER_SIZE])
            if may_be_old_message(header, 0):
                header = upgraded_header(file, wanted, position)
            elif len(header) < HEADER_SIZE:
                break
            base_offset, length, last_offset_delta, records_count = PLACE.unpack(header)
            if header[MAGIC_POSITION] > MAGIC or (header[MAGIC_POSITION] == MAGIC and length < LENGTH_MIN):
                raise MalformedMessage(f"{wanted}: {wanted.path}: no batch at position {position}")
            coverage.add_batch(base_offset, base_offset + last_offset_delta, records_count)
            positions.append(position)
            headers.append(header)
            position += length + LOG_OVERHEAD
            if len(positions) == ROWS_MAX:
                yield positions, b"".join(headers)
                positions, headers = [], []
        if positions:
            yield positions, b"".join(headers)
        if position != wanted.end_position:
            raise SegmentReplaced(f"{wanted}: {wanted.path} does not have the batches that it had when it was planned")
        coverage.check_complete(file)
    finally:
        file.close()


def upgraded_header(file: SegmentFile, wanted: Slice, position: int) -> bytes:
    """Convert the header of a message of format 0 or 1 into the header of a batch. The result keeps the message's own
    length, magic, checksum and codec. Raises `MalformedMessage` and OSError."""
    try:
        stored = parse_header(file.pread(HEADER_SIZE, position), 0, True)
        newer = upgrade_old_message((position, stored, file.pread(stored.size, position), 0))[1]
    except MalformedMessage as malformed:
        raise MalformedMessage(f"{wanted}: {wanted.path}: no batch at position {position}: {malformed}") from None
    newer.batch_length, newer.magic, newer.crc = stored.batch_length, stored.magic, stored.crc
    newer.attributes = stored.attributes
    return HEADER.pack(*(getattr(newer, name) for name in FIELDS))


def batch_rows(wanted: Slice, positions: list[int], headers: bytes) -> pa.RecordBatch:
    """Make the rows of the table `batches` from joined headers. Batches that end before the slice or begin past it are
    left out."""
    import numpy as np
    import pyarrow as pa

    found = np.frombuffer(headers, np.dtype(HEADER_FIELDS))
    base = found["base_offset"].astype(np.int64)
    last = base + found["last_offset_delta"]
    rows = np.flatnonzero((last >= wanted.start_offset) & (base < wanted.end_offset))
    found, base, last = found[rows], base[rows], last[rows]
    attributes = found["attributes"].astype(np.int32)
    has_horizon = attributes & DELETE_HORIZON_BIT != 0
    base_time, schema = found["base_timestamp"].astype(np.int64), arrow_schema(BATCHES)

    def time(milliseconds: NDArray[np.int64], mask: NDArray[np.bool_] | None = None) -> pa.Array:
        return pa.array(microseconds_of(milliseconds), mask=mask).view(schema.field("maxTimestamp").type)

    columns = {
        "topic": pa.repeat(pa.scalar(wanted.topic), len(rows)),
        "partition": np.full(len(rows), wanted.partition, np.int32),
        "baseOffset": base,
        "lastOffset": last,
        "records": found["records_count"].astype(np.int32),
        "bytes": found["batch_length"].astype(np.int64) + LOG_OVERHEAD,
        "codec": codec_names(attributes & CODEC_MASK),
        "baseTimestamp": time(base_time, has_horizon),
        "maxTimestamp": time(found["max_timestamp"].astype(np.int64)),
        "timestampType": (attributes & TIMESTAMP_TYPE_BIT != 0).astype(np.int32),
        "producerId": found["producer_id"].astype(np.int64),
        "producerEpoch": found["producer_epoch"].astype(np.int32),
        "baseSequence": found["base_sequence"].astype(np.int32),
        "leaderEpoch": found["leader_epoch"].astype(np.int32),
        "isTransactional": attributes & TRANSACTIONAL_BIT != 0,
        "isControl": attributes & CONTROL_BIT != 0,
        "isAborted": is_aborted(wanted, found, base, attributes),
        "deleteHorizon": time(base_time, ~has_horizon),
        "position": np.array(positions, np.int64)[rows],
    }
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def codec_names(numbers: NDArray[np.int32]) -> pa.Array:
    """The names of codecs. If all numbers are the same, Arrow's compute functions are not used, because their import
    takes longer than reading all headers of a segment."""
    import pyarrow as pa

    names = [codec.name.lower() for codec in Codec] + ["unknown"] * (CODEC_MASK + 1 - len(Codec))
    if len(numbers) and bool((numbers == numbers[0]).all()):
        return pa.repeat(pa.scalar(names[numbers[0]]), len(numbers))
    return pa.array(names).take(pa.array(numbers))


def is_aborted(
    wanted: Slice, found: NDArray[np.void], base: NDArray[np.int64], attributes: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Return a mask of the batches that belong to the aborted transactions of the slice."""
    import numpy as np

    aborted = np.zeros(len(base), np.bool_)
    is_data = (attributes & TRANSACTIONAL_BIT != 0) & (attributes & CONTROL_BIT == 0)
    for each in wanted.aborted:
        is_its = (found["producer_id"] == each.producer_id) & (base >= each.first_offset) & (base <= each.last_offset)
        aborted |= is_data & is_its
    return aborted
