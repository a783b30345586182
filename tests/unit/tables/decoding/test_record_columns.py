"""Records as columns: equal to what the reader of values says, and nothing but MalformedMessage for hostile bytes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import Codec
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import BatchHeader, TimestampType
from moldau.protocol.record_builder import NEXT_OFFSET, Record, assemble, build_batch
from moldau.protocol.record_reader import records_of
from moldau.tables.decoding import segment_batches
from moldau.tables.decoding.decoded_rows import COLUMN_TYPES
from moldau.tables.decoding.record_columns import Decoder, record_batches
from moldau.tables.decoding.span_rows import decode_spans
from moldau.tables.decoding.vectored_rows import decode_vectored
from moldau.tables.origins.local_segments import LocalSegments
from moldau.tables.origins.port import Slice, StoredSegment
from tests.support.segments import mixed_batches

SHOWN = {"timestamp": pa.int64()}
"""As microseconds: not every time is one of Python's."""
EVERYTHING = (0, 1 << 62)
DECODERS = (Decoder(decode_spans, 1 << 20), Decoder(decode_vectored, 1 << 20))
"""The kernel, compiled or not as it is here, and numpy."""

Row = dict[str, object]


def rows_of(
    path: Path,
    batches: Iterable[bytes],
    wanted: tuple[int, int] = EVERYTHING,
    columns: Iterable[str] = COLUMN_TYPES,
    chunk_size: int = 1 << 20,
) -> list[Row]:
    """What the columns say; both decoders say it, or both refuse."""
    path.write_bytes(b"".join(batches))
    size = path.stat().st_size
    segment = StoredSegment(0, 1 << 62, size, str(path), is_growing=False)
    whole = Slice("t", 3, LocalSegments(), segment, 0, size, None, *wanted)
    outcomes = [outcome(whole, list(columns), decoder._replace(chunk_size=chunk_size)) for decoder in DECODERS]
    if not all(isinstance(each, list) for each in outcomes):
        assert all(isinstance(each, MalformedMessage) for each in outcomes), outcomes
        raise outcomes[0]  # type: ignore[misc]
    assert outcomes[0] == outcomes[1]
    assert isinstance(outcomes[0], list)
    return outcomes[0]


def outcome(whole: Slice, columns: list[str], decoder: Decoder) -> list[Row] | MalformedMessage:
    shown = pa.schema([pa.field(name, SHOWN.get(name, COLUMN_TYPES[name])) for name in columns])
    rows: list[Row] = []
    try:
        for batch in record_batches(whole, columns, None, decoder):
            batch.validate(full=True)
            rows += batch.cast(shown).to_pylist()
    except MalformedMessage as malformed:
        return malformed
    return rows


def expected(batches: Iterable[bytes], wanted: tuple[int, int] = EVERYTHING) -> list[Row]:
    """What the reader of values says."""
    data = b"".join(batches)
    return [
        row_of(header, record)
        for position, header in iterate_batches(data)
        if not header.is_control
        for record in records_of(data, position, header)
        if wanted[0] <= record.offset < wanted[1]
    ]


def row_of(header: BatchHeader, record: Record) -> Row:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 3,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": int(header.timestamp_type),
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
    }


def test_mixed_batches_are_read_as_their_values_say(tmp_path: Path) -> None:
    batches = mixed_batches(12, 50)
    rows = rows_of(tmp_path / "log", batches)
    assert rows == expected(batches)
    assert len(rows) == 600
    assert {row["timestampType"] for row in rows} == {int(each) for each in TimestampType}


def test_chunks_and_pieces_of_any_size_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = mixed_batches(12, 50, gap=5)
    monkeypatch.setattr(segment_batches, "READ_SIZE", 3_000)
    assert rows_of(tmp_path / "log", batches, chunk_size=10_000) == expected(batches)


@pytest.mark.parametrize("wanted", [(0, 1), (13, 14), (49, 51), (77, 333), (599, 700), (600, 700)])
def test_only_the_offsets_that_are_wanted_are_read(tmp_path: Path, wanted: tuple[int, int]) -> None:
    batches = mixed_batches(12, 50)
    assert rows_of(tmp_path / "log", batches, wanted) == expected(batches, wanted)


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    (row, *_) = rows_of(tmp_path / "log", mixed_batches(1, 2), columns=["offset", "key"])
    assert list(row) == ["offset", "key"]


def test_compaction_leaves_gaps_and_empty_batches(tmp_path: Path) -> None:
    batches = [
        build_batch([Record(b"a", b"1", 5, offset=2), Record(b"b", None, 7, offset=90)], last_offset=99),
        build_batch([], base_offset=100, last_offset=149),
        build_batch([Record(b"c", b"3", 9, offset=150)], base_offset=150, codec=Codec.ZSTD, delete_horizon_ms=1_000),
    ]
    rows = rows_of(tmp_path / "log", batches)
    assert rows == expected(batches)
    assert [row["offset"] for row in rows] == [2, 90, 150]


def test_transactions_are_read_uncommitted_and_without_their_markers(tmp_path: Path) -> None:
    batches = [
        build_batch([Record(b"a", b"1", 5)], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
        end_transaction_marker(
            commits=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=6, base_offset=1
        ),
        build_batch([Record(b"b", b"2", 5)], base_offset=2),
    ]
    assert [row["offset"] for row in rows_of(tmp_path / "log", batches)] == [0, 2]


def test_names_of_headers_need_not_be_text(tmp_path: Path) -> None:
    batch = build_batch([Record(b"k", b"v", 5, headers=(("xx", b"1"),))])
    body = batch[61:].replace(b"xx", b"\xff\xfe")
    header = next(iter(iterate_batches(batch)))[1]
    broken = assemble((body,), 0, -1, 0, 0, header.base_timestamp, header.max_timestamp, -1, -1, -1, 1)
    (row,) = rows_of(tmp_path / "log", [broken])
    assert row["headers"] == [{"key": "��", "value": b"1"}]


def test_a_record_without_a_time_shows_the_minus_one_of_kafka(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path / "log", [build_batch([Record(b"k", b"v")])])
    assert row["timestamp"] == -1000


def test_a_time_that_microseconds_cannot_say_is_the_last_one_that_they_can(tmp_path: Path) -> None:
    times = [0, (1 << 62), (1 << 63) // 1000 + 1]
    batches = [build_batch([Record(b"k", b"v", each)], base_offset=offset) for offset, each in enumerate(times)]
    last = (1 << 63) // 1000 * 1000
    assert [row["timestamp"] for row in rows_of(tmp_path / "log", batches)] == [0, last, last]


def test_a_flipped_bit_is_found_and_the_file_is_named(tmp_path: Path) -> None:
    first, second = mixed_batches(2, 20)
    broken = bytearray(first + second)
    broken[len(first) + 100] ^= 4
    with pytest.raises(MalformedMessage, match=f"{tmp_path}/log, position {len(first)}: the checksum"):
        rows_of(tmp_path / "log", [bytes(broken)])


record_strategy = st.builds(
    Record,
    key=st.none() | st.binary(max_size=200),
    value=st.none() | st.binary(max_size=20_000),
    timestamp=st.integers(-1, 1 << 41),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    offset=st.just(NEXT_OFFSET),
)
FEW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@FEW
@given(
    st.lists(st.tuples(st.sampled_from(Codec), st.lists(record_strategy, min_size=1, max_size=8)), max_size=5),
    st.integers(0, 20),
    st.integers(0, 40),
)
def test_any_records_are_read_as_their_values_say(
    tmp_path: Path, drawn: list[tuple[Codec, list[Record]]], start: int, end: int
) -> None:
    batches = []
    offset = 0
    for codec, records in drawn:
        batches.append(build_batch(records, base_offset=offset, codec=codec))
        offset += len(records)
    assert rows_of(tmp_path / "log", batches, (start, end)) == expected(batches, (start, end))


@FEW
@given(st.data())
def test_hostile_records_raise_nothing_but_malformed_message(tmp_path: Path, data: st.DataObject) -> None:
    """The checksum holds: what lies behind it is whatever a producer made up."""
    good = build_batch([Record(b"key", b"value", 5, (("h", b"1"),)), Record(None, None, 6), Record(b"k" * 200, b"", 7)])
    body = bytearray(good[61:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    count = data.draw(st.integers(-1, 5) | st.just(1 << 30))
    batch = assemble((bytes(body[:cut]),), 0, -1, 0, 2, 5, 7, -1, -1, -1, count)
    try:
        mine = rows_of(tmp_path / "log", [batch])
    except MalformedMessage:
        return
    assert mine == expected([batch])
