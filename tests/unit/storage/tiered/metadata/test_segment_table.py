"""Packed rows hold what values would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment, SegmentState
from moldau.storage.tiered.metadata.segment_table import SegmentTable

OFFSETS = st.integers(0, (1 << 63) - 1)
IDS = st.integers(0, 40).map(lambda number: number.to_bytes(8, "big") + bytes([0, 0, 0, number % 3]) + bytes(4))
"""Many share the bytes that are hashed."""
SEGMENTS = st.builds(
    RemoteSegment,
    segment_id=IDS,
    start_offset=OFFSETS,
    last_offset=OFFSETS,
    broker_id=st.integers(0, (1 << 31) - 1),
    max_timestamp_ms=st.integers(-1, (1 << 63) - 1),
    event_timestamp_ms=OFFSETS,
    epochs=st.lists(st.builds(EpochStart, st.integers(0, 1 << 30), OFFSETS), min_size=1, max_size=3).map(tuple),
    size=st.integers(0, (1 << 31) - 1),
    state=st.sampled_from(SegmentState),
    custom_metadata=st.none() | st.binary(max_size=8),
    has_transaction_index=st.booleans(),
)


@given(st.lists(SEGMENTS | IDS))
def test_a_table_is_a_dictionary(steps: list[RemoteSegment | bytes]) -> None:
    table, model = SegmentTable(), dict[bytes, RemoteSegment]()
    for step in steps:
        if isinstance(step, RemoteSegment):
            row = table.find(step.segment_id)
            if row is None:
                table.add(step)
            else:
                table.put(row, step)
            model[step.segment_id] = step
        elif model.pop(step, None) is not None:
            row = table.find(step)
            assert row is not None
            table.remove(row)
        assert table.count == len(model)
        assert {table.get(row).segment_id: table.get(row) for row in table.rows()} == model
        for segment_id, segment in model.items():
            row = table.find(segment_id)
            assert row is not None
            assert table.offsets(row) == (segment.start_offset, segment.last_offset)
            assert (table.size(row), table.state(row)) == (segment.size, segment.state)
            assert table.has_transaction_index(row) == segment.has_transaction_index
