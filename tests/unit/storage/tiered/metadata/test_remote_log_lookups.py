"""Lookups that do not walk all segments find what a walk finds, in any history of copies and deletions."""

from __future__ import annotations

from random import Random

import pytest

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.leader_history import is_in_history
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment, SegmentState, SegmentUpdate


def drawn_segment(random: Random, number: int) -> RemoteSegment:
    start = random.randrange(0, 200, 10)
    last = start + random.choice([9, 9, 19, 39])
    first_epoch = random.randrange(4)
    epochs = [EpochStart(first_epoch, start)]
    if random.random() < 0.3 and last > start:
        epochs.append(EpochStart(first_epoch + random.randint(1, 2), random.randint(start + 1, last)))
    return RemoteSegment(
        number.to_bytes(16, "big"),
        start,
        last,
        1,
        start * 10 + random.choice([0, 0, 500, -500]),
        number,
        tuple(epochs),
        random.randint(1, 1000),
        has_transaction_index=random.random() < 0.3,
    )


def drawn_log(random: Random) -> RemoteLog:
    log = RemoteLog()
    known: list[RemoteSegment] = []
    for number in range(1, random.randint(2, 60)):
        segment = drawn_segment(random, number)
        assert log.replay(segment)
        log.replay(SegmentUpdate(segment.segment_id, 1, number, SegmentState.COPY_SEGMENT_FINISHED))
        known.append(segment)
        if random.random() < 0.3:
            gone = known.pop(random.randrange(len(known))).segment_id
            log.replay(SegmentUpdate(gone, 1, number, SegmentState.DELETE_SEGMENT_STARTED))
            if random.random() < 0.5:
                log.replay(SegmentUpdate(gone, 1, number, SegmentState.DELETE_SEGMENT_FINISHED))
        if random.random() < 0.2:  # lookups in between: what they remember must not outlive a change
            log.first_from_time(random.randrange(4), random.randrange(3000), 0)
    return log


def drawn_epochs(random: Random, log_end_offset: int) -> list[EpochStart]:
    epochs = sorted(random.sample(range(6), random.randint(0, 5)))
    starts = sorted(random.sample(range(log_end_offset), len(epochs)))
    return [EpochStart(*each) for each in zip(epochs, starts, strict=True)]


@pytest.mark.parametrize("seed", range(300))
def test_lookups_find_what_a_walk_finds(seed: int) -> None:
    random = Random(seed)
    log = drawn_log(random)
    read = log.read_segments()
    assert list(log.oldest_first()) == read
    assert log.size() == sum(each.size for each in read)
    for _ in range(5):
        log_end = random.randrange(100, 260)
        entries = drawn_epochs(random, log_end)
        assert log.segments_outside_history(log_end, entries) == [
            each for each in read if not is_in_history(each, log_end, entries)
        ]
    for epoch in range(6):
        places = [log.find_segment(epoch, offset) for offset in range(240)]
        for _ in range(10):
            timestamp, offset = random.randrange(3000), random.randrange(240)
            found = log.first_from_time(epoch, timestamp, offset)
            expected = next(
                (each for each in places[offset:] if each is not None and each.max_timestamp_ms >= timestamp), None
            )
            if expected is not None:
                assert found is not None and dict(found.epochs)[epoch] <= dict(expected.epochs)[epoch]
            if found is not None:
                assert found.max_timestamp_ms >= timestamp and found.last_offset >= offset
            walked = log.find_segment(epoch, offset)
            while walked is not None and not walked.has_transaction_index:
                walked = log.find_segment(epoch, walked.last_offset + 1)
            assert log.next_with_transaction_index(epoch, offset) == walked
