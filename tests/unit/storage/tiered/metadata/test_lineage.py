"""The lineage of a remote segment, and the lowest cleaned end offset of those that are read."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.lineage import (
    FORMAT,
    CleanedEndCounts,
    Lineage,
    ancestor_digest,
    erased_end_offset,
    read_lineage,
)
from moldau.storage.tiered.metadata.records import RemoteChange
from moldau.storage.tiered.metadata.remote_log import OFFSET_MAX, RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment, SegmentState, SegmentUpdate

LINEAGE = Lineage(2, 1_000_000, 3, ancestor_digest([b"a" * 16, b"b" * 16, b"c" * 16]))


def test_it_is_read_as_it_was_written() -> None:
    assert read_lineage(LINEAGE.encode()) == LINEAGE
    assert FORMAT.size == 30 <= 128


def test_the_erased_end_is_read_as_it_was_written() -> None:
    erased = LINEAGE._replace(erased_end_offset=70)
    assert read_lineage(erased.encode()) == erased
    assert erased_end_offset(erased.encode()) == 70
    assert len(erased.encode()) == 38 <= 128
    assert erased_end_offset(LINEAGE.encode()) == erased_end_offset(None) == 0


def test_the_order_of_the_ancestors_does_not_matter() -> None:
    assert ancestor_digest([b"c" * 16, b"a" * 16, b"b" * 16]) == LINEAGE.ancestor_digest


def test_custom_metadata_of_another_writer_is_no_lineage() -> None:
    assert read_lineage(None) is None
    assert read_lineage(b"") is None
    assert read_lineage(bytes(30)) is None
    assert read_lineage(LINEAGE.encode() + b"x") is None


def metadata(end_offset: int) -> bytes | None:
    return Lineage(1, end_offset).encode() if end_offset else None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4))))
def test_the_least_is_that_of_what_is_there(steps: list[tuple[bool, int]]) -> None:
    ends, held = CleanedEndCounts(), list[int]()
    for adds, end_offset in steps:
        if adds:
            held.append(end_offset)
            ends.add(metadata(end_offset))
        elif end_offset in held:
            held.remove(end_offset)
            ends.remove(metadata(end_offset))
        assert ends.lowest_cleaned_end(OFFSET_MAX) == min(held, default=OFFSET_MAX)


def scanned(log: RemoteLog) -> int:
    found = [read_lineage(each.custom_metadata) for each in log.read_segments()]
    return min((each.cleaned_end_offset if each else 0 for each in found), default=OFFSET_MAX)


def begins(number: int, start: int, end_offset: int, epoch: int) -> RemoteChange:
    first = EpochStart(epoch, start)
    epochs = (first, EpochStart(epoch + 1, start + 1)) if number % 2 else (first,)
    return RemoteSegment(
        bytes([number]) * 16, start, start + 9, 1, 0, 0, epochs, 100, custom_metadata=metadata(end_offset)
    )


def moves(state: SegmentState) -> Callable[[int, int, int, int], RemoteChange]:
    return lambda number, start, end_offset, epoch: SegmentUpdate(
        bytes([number]) * 16, 1, 0, state, metadata(end_offset)
    )


STEPS = (
    begins,
    moves(SegmentState.COPY_SEGMENT_FINISHED),
    moves(SegmentState.COPY_SEGMENT_FINISHED),
    moves(SegmentState.DELETE_SEGMENT_STARTED),
    moves(SegmentState.DELETE_SEGMENT_FINISHED),
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(STEPS),
            st.integers(0, 5),
            st.sampled_from((0, 5, 10, 20)),
            st.integers(0, 30),
            st.integers(0, 2),
        ),
        max_size=40,
    )
)
def test_a_remote_log_remembers_what_a_scan_would_find(
    steps: list[tuple[Callable[[int, int, int, int], RemoteChange], int, int, int, int]],
) -> None:
    log = RemoteLog()
    for step, number, start, end_offset, epoch in steps:
        log.replay(step(number, start, end_offset, epoch))
        assert log.cleaned_end_offset() == scanned(log)
