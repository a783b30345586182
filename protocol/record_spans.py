"""Finds the fields of records for Arrow, in Python; `record_spans.c` is the compiled form.

It is used in two passes over the records of some batches. `RecordSpans.read` notes the position of each key and value,
and writes offsets, timestamps and the positions of headers. Then the caller knows the size of the columns of keys and
values, and `RecordSpans.copy` writes them into Arrow's layout, each byte once. In the compiled form both passes let
other threads run. The Python form is slow: tests compare the compiled form with it, and readers without the compiled
form use numpy instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.protocol.primitives import MalformedMessage

if TYPE_CHECKING:
    from typing_extensions import Buffer

KEYS: Final = 1
VALUES: Final = 2
NO_HEADERS: Final = -1
"""The position of headers for a record that has none."""
NULL: Final = -1
PAST_BATCH: Final = "a record goes past the end of its batch"
PAST_RECORD: Final = "a record goes past its end"
TIMESTAMP_MS_MAX: Final = ((1 << 63) - 1) // 1000
"""The largest number of milliseconds whose microseconds fit into 64 bits."""


class RecordSpans:
    """The fields of the records of some batches as columns, in the order of the records."""

    def __init__(
        self,
        capacity: int,
        start_offset: int,
        end_offset: int,
        fields: int,
        offsets: Buffer,
        timestamps: Buffer | None,
        headers: Buffer | None,
    ) -> None:
        """Make room for `capacity` records. Only records with offsets in [start_offset, end_offset) are taken.

        `fields` is a sum of `KEYS` and `VALUES`. The other columns are written into buffers for `capacity` numbers of
        64 bits: offsets, timestamps in microseconds, and the positions of the counts of headers in the records of their
        batches. None leaves a column out.
        """
        self.count = 0
        self._capacity = capacity
        self._wanted = range(start_offset, end_offset)
        self._fields: dict[int, list[memoryview | None]] = {each: [] for each in (KEYS, VALUES) if fields & each}
        self._offsets = _numbers(offsets)
        self._timestamps = None if timestamps is None else _numbers(timestamps)
        self._headers = None if headers is None else _numbers(headers)

    def read(
        self,
        data: Buffer,
        start: int,
        end: int,
        records_count: int,
        base_offset: int,
        last_offset_delta: int,
        base_time: int,
        has_append_time: bool,
    ) -> None:
        """Add the records of a batch, which must fill `data[start:end]`. The caller must not change these bytes until
        the columns are copied.

        `base_time` is the base timestamp of the batch in milliseconds or, with `has_append_time`, the timestamp of all
        its records. Raises `MalformedMessage` if the framing of a record, the count and the end do not agree. The
        contents of headers are not checked.
        """
        view = memoryview(data)
        if not 0 <= records_count <= end - start:
            raise MalformedMessage(f"{records_count} records do not fill the {end - start} bytes of their batch")
        assert records_count <= self._capacity - self.count
        at = start
        for _ in range(records_count):
            size, at = _read_raw(view, at, end, 5, PAST_BATCH)
            record_end = at + (size >> 1)
            if size & 1 or record_end > end:
                raise MalformedMessage(PAST_BATCH)
            raw_time, at = _read_raw(view, at + 1, record_end, 10)  # The byte before it holds the attributes.
            delta, at = _read_raw(view, at, record_end, 5)
            if delta & 1 or delta >> 1 > last_offset_delta:
                raise MalformedMessage("a record's offset is not one of its batch")
            key, at = _read_field(view, at, record_end)
            value, at = _read_field(view, at, record_end)
            if at >= record_end:
                raise MalformedMessage(PAST_RECORD)
            has_headers = view[at] != 0
            if (at + 1 >= record_end) if has_headers else (at + 1 != record_end):
                raise MalformedMessage("a record is not as long as it says")
            if base_offset + (delta >> 1) in self._wanted:
                self._offsets[self.count] = base_offset + (delta >> 1)
                if self._timestamps is not None:
                    self._timestamps[self.count] = _microseconds(base_time, 0 if has_append_time else _zigzag(raw_time))
                if self._headers is not None:
                    self._headers[self.count] = at - start if has_headers else NO_HEADERS
                for column, field in ((KEYS, key), (VALUES, value)):
                    if column in self._fields:
                        self._fields[column].append(field)
                self.count += 1
            at = record_end
        if at != end:
            raise MalformedMessage(f"{records_count} records do not fill the {end - start} bytes of their batch")

    def keep(self, is_kept: Buffer) -> None:
        """Keep only some of the records, in all columns. `is_kept` has a byte for each record, which is 0 for a record
        that is dropped."""
        rows = [row for row, kept in enumerate(memoryview(is_kept).cast("B")) if kept]
        assert len(memoryview(is_kept).cast("B")) == self.count, "a byte for each record"
        for numbers in (self._offsets, self._timestamps, self._headers):
            if numbers is not None:
                for number, row in enumerate(rows):
                    numbers[number] = numbers[row]
        self._fields = {column: [fields[row] for row in rows] for column, fields in self._fields.items()}
        self.count = len(rows)

    def needs(self, column: int) -> tuple[int, int]:
        """The number of bytes of all fields of a column, and the number of its fields that are null."""
        fields = self._fields[column]
        return sum(len(field) for field in fields if field is not None), fields.count(None)

    def copy(self, column: int, ends: Buffer, data: Buffer, validity: Buffer | None) -> None:
        """Write a column in the layout of Arrow's binary type, which holds less than 2 GiB.

        The caller allocates the buffers. `data` gets the bytes of the fields, and `ends` their ends: a 0, then a 32-bit
        number for each record. `validity` gets one bit for each record, and may be None if no field is null.
        """
        numbers, out = memoryview(ends).cast("B").cast("i"), memoryview(data).cast("B")
        bits = None if validity is None else memoryview(validity).cast("B")
        numbers[0] = end = 0
        for row, field in enumerate(self._fields[column]):
            start, end = end, end + (0 if field is None else len(field))
            if field is not None:
                out[start:end] = field
            if bits is not None:
                if row % 8 == 0:
                    bits[row // 8] = 0
                bits[row // 8] |= (field is not None) << row % 8
            numbers[row + 1] = end


def _numbers(buffer: Buffer) -> memoryview:
    return memoryview(buffer).cast("B").cast("q")


def _read_raw(view: memoryview, at: int, end: int, size_max: int, problem: str = PAST_RECORD) -> tuple[int, int]:
    """Read a number of at most `size_max` bytes before `end`. Returns the number without zig-zag decoding, and the
    position after it. `problem` is the error message if the number does not end before `end`.
    """
    value = 0
    for number in range(size_max):
        if at >= end:
            raise MalformedMessage(problem)
        byte = view[at]
        at += 1
        if number == 9 and byte > 1:
            break
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value, at
    raise MalformedMessage("a number of too many bytes")


def _read_field(view: memoryview, at: int, end: int) -> tuple[memoryview | None, int]:
    raw, at = _read_raw(view, at, end, 5)
    size = _zigzag(raw)
    if size < NULL or size > end - at:
        raise MalformedMessage(PAST_RECORD)
    return (None, at) if size == NULL else (view[at : at + size], at + size)


def _zigzag(raw: int) -> int:
    return raw >> 1 ^ -(raw & 1)


def _microseconds(base: int, delta: int) -> int:
    """A sum of milliseconds in microseconds. The sum wraps as in Java, and is limited to times whose microseconds 64
    bits hold."""
    wrapped = (base + delta + (1 << 63)) % (1 << 64) - (1 << 63)
    return min(max(wrapped, -TIMESTAMP_MS_MAX), TIMESTAMP_MS_MAX) * 1000
