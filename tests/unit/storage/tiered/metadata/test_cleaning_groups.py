"""Groups of remote segments, and that a cleaned group takes the place of its ancestors, whatever cleaners race."""

from __future__ import annotations

from random import Random

import pytest

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.cleaning_groups import cleaned_lineage, cleaning_groups, merged_epochs
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment, SegmentState, SegmentUpdate

FINISHED, DELETING, DELETED = list(SegmentState)[1:]


def segment(number: int, start: int, last: int, *epochs: tuple[int, int], size: int = 100) -> RemoteSegment:
    starts = tuple(EpochStart(*each) for each in epochs) or (EpochStart(0, start),)
    return RemoteSegment(number.to_bytes(16, "big"), start, last, 1, 5, 6, starts, size)


def ranges(groups: list[list[RemoteSegment]]) -> list[list[tuple[int, int]]]:
    return [[(each.start_offset, each.last_offset) for each in group] for group in groups]


def test_neighbours_are_grouped_up_to_a_size() -> None:
    segments = [segment(number, 10 * number, 10 * number + 9) for number in range(5)]
    assert ranges(cleaning_groups(segments, 250)) == [[(0, 9), (10, 19)], [(20, 29), (30, 39)], [(40, 49)]]
    assert len(cleaning_groups(segments, 1)) == 5
    assert len(cleaning_groups(segments, 500)) == 1
    assert cleaning_groups([], 100) == []


def test_a_gap_ends_a_group_and_an_overlap_never_does() -> None:
    gap = [segment(1, 0, 9), segment(2, 20, 29)]
    assert len(cleaning_groups(gap, 10_000)) == 2
    overlap = [segment(1, 0, 9), segment(2, 5, 14, (1, 5)), segment(3, 15, 19, (1, 15))]
    assert ranges(cleaning_groups(overlap, 1)) == [[(0, 9), (5, 14)], [(15, 19)]]


def test_two_histories_are_not_made_one() -> None:
    assert cleaning_groups([segment(1, 0, 9, (3, 0)), segment(2, 5, 14, (2, 5))], 1000) == []


def test_what_an_index_or_a_record_cannot_hold_is_not_grouped() -> None:
    far = [segment(1, 0, 9), segment(2, 10, 1 << 31)]
    assert ranges(cleaning_groups(far, 1000)) == [[(0, 9)], [(10, 1 << 31)]]
    assert cleaning_groups([segment(1, 0, 1 << 31)], 1000) == []


def cleaned(group: list[RemoteSegment], number: int, end_offset: int) -> RemoteSegment:
    return RemoteSegment(
        number.to_bytes(16, "big"),
        min(each.start_offset for each in group),
        max(each.last_offset for each in group),
        1,
        5,
        number,
        merged_epochs(group),
        50,
        custom_metadata=cleaned_lineage(group, end_offset).encode(),
    )


@pytest.mark.parametrize("seed", range(60))
def test_cleaners_that_race_never_bring_a_replaced_segment_back(seed: int) -> None:
    random, log = Random(seed), RemoteLog()
    epochs_of = {0: [(0, 0)], 10: [(0, 10), (1, 15)], 20: [(1, 20)], 30: [(1, 30), (3, 33)], 40: [(3, 40)]}
    for number, (start, epochs) in enumerate(epochs_of.items()):
        each = segment(number, start, start + 9, *epochs)
        log.replay(each)
        log.replay(SegmentUpdate(each.segment_id, 1, 0, FINISHED))
    places = [(0, offset) for offset in range(15)] + [(1, offset) for offset in range(15, 33)]
    places += [(3, offset) for offset in range(33, 50)]
    replaced: set[bytes] = set()
    running: list[RemoteSegment] = []
    for number in range(100, 140):
        before = {each.segment_id for each in log.read_segments()}
        if random.random() < 0.6 or not running:
            groups = cleaning_groups(log.read_segments(), random.choice([60, 120, 220, 500]))
            each = cleaned(random.choice(groups), number, 50)
            assert log.replay(each)
            running.append(each)
        else:
            each = running.pop(random.randrange(len(running)))
            log.replay(SegmentUpdate(each.segment_id, 1, number, FINISHED))
        read = {each.segment_id for each in log.read_segments()}
        replaced |= before - read
        assert read.isdisjoint(replaced)
        assert {each.segment_id for each, _ in log.superseded_copies()} >= replaced
        for epoch, offset in places:
            found = log.find_segment(epoch, offset)
            assert found is not None and found.start_offset <= offset <= found.last_offset
        assert sorted(log.read_segments(), key=lambda each: each.start_offset)[0].start_offset == 0
        assert log.size() == sum(each.size for each in log.read_segments())
        if random.random() < 0.3:
            for gone, _ in log.superseded_copies():
                log.replay(SegmentUpdate(gone.segment_id, 1, number, DELETING))
                log.replay(SegmentUpdate(gone.segment_id, 1, number, DELETED))
                replaced.discard(gone.segment_id)
    assert log.cleaned_end_offset() in (0, 50)
