"""Selects the records of fetched batches that a page shows, and formats them as text.

    batches ──▶ records ──▶ JSON of framed values ──▶ without what is masked ──▶ those that match ──▶ texts

The batches of a piece are examined until there are enough records or characters, or until their decompressed size is
above `EXPANDED_MAX`. The next page continues from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pickle import PickleBuffer
from typing import Final, NamedTuple

from moldau.broker.config.internal_topics import RecordKind
from moldau.broker.config.values import linear_matcher
from moldau.broker.console.decoding.counting import EXPANDED_SIZE_MAX
from moldau.broker.console.decoding.fields import field_test
from moldau.broker.console.decoding.prefilter import BatchPrefilter, required_bytes_of
from moldau.broker.console.decoding.schemas import Schemas
from moldau.broker.console.decoding.texts import (
    KEY_SHOWN,
    NULL,
    ShownBytes,
    bytes_as_text,
    cut_printable,
    json_as_text,
)
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import decompress
from moldau.protocol.messages.fetch import AbortedTransaction
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, MAGIC, BatchHeader
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import decode_records, records_of
from moldau.tables.values.masks import Masks

VALUE_SHOWN: Final = 2_000
WHOLE_SHOWN: Final = 200_000
"""The most characters of a value: in a list (`VALUE_SHOWN`), or on the page of a single record (`WHOLE_SHOWN`)."""
HEADERS_SHOWN: Final = 20
NOTES_SHOWN: Final = 500
EXPANDED_MAX: Final = 1 << 25
"""The decompressed bytes after which no further batch of a piece is examined."""
RECORD_EFFORT: Final = 256
TESTED_FOR_DECODED: Final = 4
SIFTED_FOR_DECODED: Final = 16
"""The units of effort. A record costs as much as decoding `RECORD_EFFORT` bytes. Decoding one byte costs as much as
testing a JSON field in `TESTED_FOR_DECODED` bytes, or searching `SIFTED_FOR_DECODED` bytes without decoding.
"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShownRecord:
    partition: int
    offset: int
    timestamp: int
    key: ShownBytes
    value: ShownBytes
    headers: list[tuple[str, str]]
    notes: str
    """Remarks about the record: that it is a marker, that its transaction was aborted, or that its batch cannot be
    read.
    """

    @property
    def characters(self) -> int:
        """The number of characters that the record takes on the page: of its key, value, headers and notes."""
        texts = (
            self.key.text or "",
            self.value.text or "",
            self.notes,
            *(each for pair in self.headers for each in pair),
        )
        return sum(map(len, texts))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordFilter:
    """The filters that records must pass to be shown, and how they are shown."""

    is_committed: bool
    """Whether only records that a read_committed consumer receives are shown."""
    key: bytes | None
    """The key that a record must have; None for any key."""
    find: str
    """A regular expression of RE2 that must match a whole text of the record; empty if there is none."""
    place: str
    """The texts of a record that `find` may match: key, value, headers or any of them."""
    form: str
    contents: RecordKind
    is_whole: bool
    masks: Masks
    header: tuple[str, bytes | None] | None = None
    """The name of a header that a record must have, and its value, which is None for any value. None if no header is
    required.
    """
    field: tuple[str, str] | None = None
    """A field that a JSON value must have: its path, with points between the names, and its value as text. A number,
    true, false or null is written as in JSON. None if no field is required.
    """

    @property
    def is_search(self) -> bool:
        """Whether a record must have a text, a key, a header or a field to be shown."""
        return bool(self.find) or any(each is not None for each in (self.key, self.header, self.field))


class FetchedPiece(NamedTuple):
    """Batches that were fetched from a partition, with the limits on the records that are selected from them."""

    partition: int
    records: BytesLike | PickleBuffer
    """Whole batches; the last one may be cut short."""
    aborted: Iterable[AbortedTransaction]
    offset: int
    end: int
    """The end (exclusive) of the offsets to examine. They begin at `offset`."""
    limit: int
    """The most records that are shown."""
    characters: int
    """The number of characters after which no further record is shown."""
    selects_newest: bool
    """Whether the last matching records are selected, instead of the first."""


class SelectedRecords(NamedTuple):
    """The records that were selected from a piece, and how far the piece was examined."""

    records: list[ShownRecord]
    next_offset: int
    """The offset from which reading continues."""
    expanded: int
    """The decompressed bytes that were examined."""
    left_out: int = 0
    """The number of matching records before `records` that the limits left out."""
    size: int = 0
    """The bytes of the examined batches as they are stored."""


class _Match(NamedTuple):
    """A record that matches, or a batch that cannot be read."""

    record: Record
    notes: str
    is_control: bool = False
    problem_size: int = -1
    """The bytes of the batch that cannot be read; -1 if this is a record."""


class _Progress:
    """The progress through the batches of a piece, and its cost."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.size = 0
        self.expanded = 0
        self.effort = 0
        """The effort so far: the number of bytes that could have been decoded in the same time."""

    def note_decoded(self, size: int) -> None:
        self.expanded += size
        self.effort += size + RECORD_EFFORT

    def note_tested(self, size: int, records_count: int) -> None:
        self.expanded += size
        self.effort += (size + RECORD_EFFORT * records_count) // TESTED_FOR_DECODED

    def note_sifted(self, size: int) -> None:
        self.expanded += size
        self.effort += size // SIFTED_FOR_DECODED


def select_records(
    piece: FetchedPiece, wanted: RecordFilter, schemas: Schemas | None, effort_max: int = EXPANDED_MAX * 8
) -> SelectedRecords:
    """Select the records of a piece that match `wanted`. Its batches are examined until the effort is above
    `effort_max`. `schemas` decodes values in the format of a schema registry; None if no registry is set.
    """
    progress = _Progress(piece.offset)
    matching = _matches(piece, wanted, schemas, progress, effort_max)
    if not piece.selects_newest:
        return _first(piece, wanted, matching, progress)
    kept: deque[_Match] = deque(maxlen=piece.limit)
    found = 0
    for each in matching:
        kept.append(each)
        found += 1
    shown: deque[ShownRecord] = deque()
    left = piece.characters
    while kept and left > 0:
        shown.appendleft(_show(piece.partition, kept.pop(), wanted, left))
        left -= shown[0].characters
    offset = min(progress.offset, piece.end)
    return SelectedRecords(list(shown), offset, progress.expanded, found - len(shown), progress.size)


def _first(
    piece: FetchedPiece, wanted: RecordFilter, matching: Iterator[_Match], progress: _Progress
) -> SelectedRecords:
    shown: list[ShownRecord] = []
    left = piece.characters
    for each in matching:
        if len(shown) == piece.limit or left <= 0:
            return SelectedRecords(shown, each.record.offset, progress.expanded, 0, progress.size)
        shown.append(_show(piece.partition, each, wanted, left))
        left -= shown[-1].characters
    return SelectedRecords(shown, min(progress.offset, piece.end), progress.expanded, 0, progress.size)


def _matches(
    piece: FetchedPiece, wanted: RecordFilter, schemas: Schemas | None, progress: _Progress, effort_max: int
) -> Iterator[_Match]:
    """The records of a piece that match, in the order of their offsets."""
    open_aborts: dict[int, list[int]] = {}
    for each in sorted(piece.aborted, key=lambda each: each.first_offset):
        open_aborts.setdefault(each.producer_id, []).append(each.first_offset)
    data = bytes(piece.records)
    signs = required_bytes_of(wanted, has_schemas=schemas is not None)
    sieve = BatchPrefilter(data, signs) if signs else None
    unmasked = unmasked_conditions(wanted) if wanted.masks else None
    is_framed = schemas is not None and wanted.contents is RecordKind.PLAIN and wanted.form != "hex"
    of_value = None if unmasked is None or unmasked.field is None or is_framed else field_test(*unmasked.field)
    batches = iterate_batches(data)
    while True:
        if sieve is not None:
            batches.position, skipped = sieve.skip(batches.position)
            progress.offset = max(progress.offset, skipped)
        progress.size = batches.position
        following = next(batches, None)
        if following is None:
            return
        position, header = following
        if header.base_offset >= piece.end:
            progress.offset = piece.end
            return
        if header.last_offset < piece.offset:
            continue
        if progress.expanded > EXPANDED_MAX or progress.effort > effort_max:
            return
        firsts = open_aborts.get(header.producer_id, [])
        is_aborted = bool(firsts) and header.is_transactional and firsts[0] <= header.last_offset
        if header.is_control and is_aborted:
            firsts.pop(0)  # The marker ends the aborted transaction.
        if wanted.is_committed and (header.is_control or is_aborted):
            progress.offset = header.next_offset
            continue
        try:
            for record in _decoded_records(data, position, header, sieve, of_value, progress):
                if not piece.offset <= record.offset < piece.end:
                    continue
                notes = ""
                if not header.is_control:
                    if schemas is not None and is_framed:
                        record, notes = schemas.readable(record)
                    if unmasked is not None:
                        if not matches(record, unmasked):
                            continue
                        record = wanted.masks.mask_record(record)
                if matches(record, wanted):
                    yield _Match(record, notes, header.is_control)
        except MalformedMessage as problem:
            offset = max(piece.offset, header.base_offset)
            yield _Match(Record(offset=offset, timestamp=-1), f"a batch cannot be read: {problem}", False, header.size)
        progress.offset = header.next_offset


def _decoded_records(
    data: bytes,
    position: int,
    header: BatchHeader,
    sieve: BatchPrefilter | None,
    of_value: Callable[[bytes | None], bool] | None,
    progress: _Progress,
) -> Iterator[Record]:
    """The records of a batch. If a sieve is given, only those that contain one of its signs; with `of_value`, only
    those whose value passes it. Raises `MalformedMessage`.
    """
    if (sieve is None and of_value is None) or header.magic != MAGIC or header.is_control:
        records = records_of(data, position, header, size_max=EXPANDED_SIZE_MAX)
    else:
        stored = memoryview(data)[position + HEADER_SIZE : position + header.size]
        body = bytes(decompress(header.codec, stored, size_max=EXPANDED_SIZE_MAX, is_stored=True))
        if of_value is not None:
            progress.note_tested(len(body), max(header.records_count, 0))
            yield from decode_records(body, header, of_value)
            return
        assert sieve is not None
        progress.note_sifted(len(body))
        records = sieve.records_in(body, header)
    for record in records:
        progress.note_decoded(_size(record))
        yield record


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(name) for name, _ in record.headers) + 8


def unmasked_conditions(wanted: RecordFilter) -> RecordFilter:
    """The conditions on parts of records that no mask changes. They are checked before the masks are applied, and a
    record that fails one is not masked. So the duration of a search depends only on parts that the user may see.
    """
    masks, field = wanted.masks, wanted.field
    if field is not None and masks.may_change("value", [field[0]], field[0].split(".")):
        field = None
    key = None if masks.may_change("key") else wanted.key
    header = None if masks.may_change("headers") else wanted.header
    return replace(wanted, key=key, header=header, field=field, find="")


def matches(record: Record, wanted: RecordFilter) -> bool:
    """Whether a record has the wanted key, header and field, and a text that the expression matches."""
    if wanted.key is not None and record.key != wanted.key:
        return False
    if wanted.header is not None and not _has_header(record, *wanted.header):
        return False
    if wanted.field is not None and not field_test(*wanted.field)(record.value):
        return False
    if not wanted.find:
        return True
    texts: list[bytes] = []
    if wanted.place in ("any", "key"):
        texts.append(record.key or b"")
    if wanted.place in ("any", "value"):
        texts.append(record.value or b"")
    if wanted.place in ("any", "headers"):
        texts += (f"{name}: ".encode() + (value or b"") for name, value in record.headers)
    find = linear_matcher(wanted.find)
    assert find is not None, "the page has asked whether it compiles"
    return any(find(text.decode("utf-8", "replace")) for text in texts)


def _has_header(record: Record, name: str, value: bytes | None) -> bool:
    return any(each == name and value in (None, data) for each, data in record.headers)


def _show(partition: int, match: _Match, wanted: RecordFilter, room: int) -> ShownRecord:
    """Format a matching record as text. Its value may take `room` characters, but at least `VALUE_SHOWN`."""
    record, notes = match.record, match.notes
    if match.problem_size >= 0:
        value = ShownBytes("", "text", match.problem_size, False)
        return ShownRecord(partition, record.offset, -1, NULL, value, [], notes[:NOTES_SHOWN])
    value_max = max(VALUE_SHOWN, min(WHOLE_SHOWN, room)) if wanted.is_whole else VALUE_SHOWN
    if match.is_control or wanted.contents is not RecordKind.PLAIN:
        from moldau.broker.console.decoding.record_contents import contents_of  # It declares records of coordinators.

        decoded = contents_of(record, wanted.contents, is_control=match.is_control)
        key = _decoded(decoded.pop("key", None), record.key, KEY_SHOWN)
        value = _decoded(decoded.pop("value", None), record.value, value_max)
        notes = ", ".join(f"{name} {each}" for name, each in decoded.items())
    else:
        key = bytes_as_text(record.key, wanted.form, KEY_SHOWN)
        value = bytes_as_text(record.value, wanted.form, value_max)
    headers = [
        (cut_printable(name, KEY_SHOWN)[0], bytes_as_text(each, "auto", KEY_SHOWN).text or "")
        for name, each in record.headers[:HEADERS_SHOWN]
    ]
    if len(record.headers) > HEADERS_SHOWN:
        notes = f"{notes}{', ' if notes else ''}{len(record.headers) - HEADERS_SHOWN} more headers"
    return ShownRecord(partition, record.offset, record.timestamp, key, value, headers, notes[:NOTES_SHOWN])


def _decoded(value: object, data: bytes | None, shown_max: int) -> ShownBytes:
    if value is None:
        return NULL
    if not isinstance(value, str):
        return json_as_text(value, "decoded", len(data or b""), shown_max)
    text, is_cut = cut_printable(value, shown_max)
    return ShownBytes(text, "decoded", len(data or b""), is_cut)
