"""The table `batches`: what the headers say, and nothing past the high watermark."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from moldau.protocol.compression import Codec
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import parse_header
from tests.support.segments import mixed_batches, write_checkpoints, write_partition
from tests.support.tables import rows_of
from tests.support.transactional_log import TransactionalLog, transactional_logs


def test_a_batch_is_a_row(tmp_path: Path) -> None:
    batches = mixed_batches(40, 10)
    write_partition(tmp_path, batches)
    write_checkpoints(tmp_path, {("t", 0): 400})
    rows = rows_of(tmp_path, subscribe="t", table="batches")
    assert len(rows) == 40
    for number, (row, batch) in enumerate(zip(rows, batches, strict=True)):
        header = parse_header(batch)
        assert (row["topic"], row["partition"]) == ("t", 0)
        assert (row["baseOffset"], row["lastOffset"], row["records"]) == (number * 10, number * 10 + 9, 10)
        assert (row["bytes"], row["codec"]) == (len(batch), Codec(number % 5).name.lower())
        assert row["timestampType"] == header.timestamp_type
        assert not row["isControl"] and not row["isTransactional"] and row["deleteHorizon"] is None
    assert rows[0]["position"] == 0
    assert rows[1]["position"] == len(batches[0])


def test_offsets_and_the_high_watermark_bound_it(tmp_path: Path) -> None:
    write_partition(tmp_path, mixed_batches(40, 10))
    write_checkpoints(tmp_path, {("t", 0): 300})
    rows = rows_of(tmp_path, subscribe="t", table="batches", startingOffsets='{"t": {"0": 105}}')
    assert [row["baseOffset"] for row in rows] == list(range(100, 300, 10))


def test_bytes_that_are_no_batch_are_named(tmp_path: Path) -> None:
    write_partition(tmp_path, mixed_batches(2, 10))
    write_checkpoints(tmp_path, {("t", 0): 20})
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.write_bytes(bytes(50) + log.read_bytes()[50:])
    with pytest.raises(MalformedMessage, match=r"/t-0/0+\.log: no batch at position 0"):
        rows_of(tmp_path, subscribe="t", table="batches")


@settings(max_examples=40, deadline=None)
@given(transactional_logs())
def test_aborted_batches_are_marked(log: TransactionalLog) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        write_partition(Path(name), [each.data for each in log.batches])
        write_checkpoints(Path(name), {("t", 0): log.end_offset})
        rows = rows_of(name, subscribe="t", table="batches")
    aborted = {row["baseOffset"] for row in rows if row["isAborted"]}
    committed = set(log.committed(log.end_offset))
    for row, batch in zip(rows, log.batches, strict=True):
        assert row["isControl"] == (batch.ends is not None)
        if batch.next_offset <= log.last_stable_offset(log.end_offset) and not batch.ends:
            assert (batch.base_offset in aborted) == (batch.base_offset not in committed)
