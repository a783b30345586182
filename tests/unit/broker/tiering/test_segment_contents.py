"""Which segments of a log are copied, and how they are described."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.tiering.segment_contents import (
    CannotCopy,
    CopyableSegment,
    DamagedSegment,
    check_segment,
    copyable_segments,
    describe_segment,
    is_due,
)
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from tests.support.old_messages import old_segment
from tests.unit.storage.tiered.remote_partition import written_log

ID = bytes(range(16))


def test_only_rolled_segments_wholly_below_the_last_stable_offset_are_copied(tmp_path: Path) -> None:
    log = written_log(tmp_path)
    bases = [each.base_offset for each in log.segments]
    assert [each.segment.base_offset for each in copyable_segments(log, 0, log.end_offset)] == bases[:-1]
    assert [each.segment.base_offset for each in copyable_segments(log, 0, bases[2])] == bases[:2]
    assert [each.segment.base_offset for each in copyable_segments(log, 0, bases[2] - 1)] == bases[:1]


def test_what_is_copied_is_not_copied_again_and_a_part_of_a_segment_is_copied_whole(tmp_path: Path) -> None:
    log = written_log(tmp_path)
    bases = [each.base_offset for each in log.segments]
    assert copyable_segments(log, bases[1], log.end_offset)[0].segment.base_offset == bases[1]
    assert copyable_segments(log, bases[2] - 1, log.end_offset)[0].segment.base_offset == bases[1]
    assert copyable_segments(log, bases[-1], log.end_offset) == []


def test_a_segment_is_copied_once_it_is_old_enough_or_far_enough_behind(tmp_path: Path) -> None:
    log = written_log(tmp_path)
    found = copyable_segments(log, 0, log.end_offset)[0]
    newest_ms = found.segment.max_timestamp
    newer_size = sum(each.size for each in log.segments[1:])

    def is_due_with(lag_ms: int, lag_bytes: int, age_ms: int) -> bool:
        log.config = replace(log.config, remote_copy_lag_ms=lag_ms, remote_copy_lag_bytes=lag_bytes)
        return is_due(log, found, newest_ms + age_ms)

    assert is_due_with(0, -1, 0), "at once, unless settings say otherwise"
    assert is_due_with(1_000, 0, 0)
    assert not is_due_with(1_000, -1, 999)
    assert is_due_with(1_000, -1, 1_000)
    assert is_due_with(1_000, -1, -1), "a record from the future holds nothing up"
    assert is_due_with(1_000, newer_size, 0)
    assert not is_due_with(1_000, newer_size + 1, 0)
    assert not is_due_with(-1, newer_size + 1, 1 << 50)
    assert is_due_with(-1, newer_size, 0)
    assert not is_due_with(-1, -1, 1 << 50), "local retention is unlimited, and no lag is set"


def test_the_epochs_of_a_segment_begin_where_they_begin_in_it(tmp_path: Path) -> None:
    log = written_log(tmp_path)
    found = copyable_segments(log, 0, log.end_offset)[1]
    base, end = found.segment.base_offset, found.end_offset
    log.epochs.entries = [EpochStart(1, 0), EpochStart(2, 1), EpochStart(5, base + 1), EpochStart(6, end)]
    segment = describe_segment(log, found, ID, 3, 77, 5)
    assert segment.epochs == (EpochStart(2, base), EpochStart(5, base + 1))
    assert (segment.start_offset, segment.last_offset, segment.size) == (base, end - 1, found.segment.size)


def test_the_first_epoch_begins_at_a_log_start_inside_of_the_segment(tmp_path: Path) -> None:
    log = written_log(tmp_path)
    found = copyable_segments(log, 0, log.end_offset)[0]
    log.epochs.entries = [EpochStart(2, 0)]
    log.log_start_offset = 1
    log.epochs.truncate_from_start(1)
    segment = describe_segment(log, found, ID, 3, 77, 5)
    assert segment.start_offset == 0
    assert segment.epochs == (EpochStart(2, 1),)
    log.log_start_offset = 0
    with pytest.raises(CannotCopy, match="leader epoch of offset 0"):
        describe_segment(log, found, ID, 3, 77, 5)


def test_a_segment_whose_epoch_is_not_known_is_not_copied(tmp_path: Path) -> None:
    log = written_log(tmp_path)
    log.epochs.entries = [EpochStart(5, 1)]
    with pytest.raises(CannotCopy, match="leader epoch of offset 0"):
        describe_segment(log, CopyableSegment(log.segments[0], log.segments[1].base_offset), ID, 3, 77, 5)


class Inline:
    """An environment without threads."""

    async def offload(self, work: Callable[[], Any]) -> Any:
        return work()


def test_a_segment_of_an_old_format_is_not_copied_and_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    data, records = old_segment()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(data)
    log = Log.open(LocalFiles(), str(tmp_path / "t-0"), LogConfig(is_tiered=True), now_ms=0)
    environment: Any = Inline()
    with pytest.raises(CannotCopy, match=r"messages of format 0.*DeleteRecords") as refused:
        asyncio.run(check_segment(log, CopyableSegment(log.segments[0], len(records)), environment))
    assert not isinstance(refused.value, DamagedSegment)
