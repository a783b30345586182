"""Moving the base timestamp of a batch, against the decoder of records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.record_batch import HEADER_SIZE, parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import decode_run, records_of
from moldau.storage.compaction.batch_cleaner import with_shifted_timestamps
from tests.unit.storage.compaction.runs import runs


@given(runs, st.integers(min_value=-(1 << 42), max_value=1 << 42))
def test_shifting_changes_the_timestamps_alone(chosen: list[Record], shift: int) -> None:
    batch = build_batch(chosen, base_offset=7)
    moved = list(decode_run(with_shifted_timestamps(batch[HEADER_SIZE:], shift), len(chosen), parse_header(batch)))
    assert moved == [each._replace(timestamp=each.timestamp + shift) for each in records_of(batch)]
