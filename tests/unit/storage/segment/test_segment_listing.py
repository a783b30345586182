"""Segments read from outside, while a log is written and after."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log_config import LogConfig
from moldau.storage.segment.segment_listing import PositionRange, list_segments, locate_batch, split_range
from tests.unit.storage.stories import NOW_MS, append, open_log

FS = LocalFiles()
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    log = open_log(FS, str(tmp_path / "t-0"), CONFIG)
    for number in range(600):
        append(log, f"value {number}", timestamp=NOW_MS + number)
    return log.directory  # not closed: the last index is behind its log


def test_every_offset_is_found_in_the_segment_that_holds_it(directory: str) -> None:
    segments = list_segments(FS, directory)
    assert len(segments) > 2 and segments[-1].next_base_offset is None
    for segment in segments:
        end_offset = segment.next_base_offset or 600
        for offset in range(segment.base_offset, end_offset, 7):
            place = locate_batch(FS, segment, offset)
            assert place is not None and place.base_offset == offset == place.last_offset
        if segment.next_base_offset is None:
            assert locate_batch(FS, segment, 600) is None


def test_a_segment_splits_into_slices_of_whole_batches(directory: str) -> None:
    for segment in list_segments(FS, directory):
        data = Path(segment.path()).read_bytes()
        slices = split_range(FS, segment, PositionRange(0, segment.size), 3000)
        assert slices[0].start_position == 0 and slices[-1].end_position == segment.size
        assert all(before.end_position == after.start_position for before, after in itertools.pairwise(slices))
        assert sum(len(list(iterate_batches(data, *each))) for each in slices) == len(list(iterate_batches(data)))
        if segment.next_base_offset is not None:
            assert 5 <= len(slices) <= 7


def test_a_segment_without_an_index_is_read_from_its_start(directory: str) -> None:
    for path in Path(directory).glob("*index"):
        path.unlink()
    segment = list_segments(FS, directory)[1]
    place = locate_batch(FS, segment, segment.base_offset + 50)
    assert place is not None and place.base_offset == segment.base_offset + 50
    assert split_range(FS, segment, PositionRange(0, segment.size), 3000) == [PositionRange(0, segment.size)]


class SwappingFiles(LocalFiles):
    """A directory in which a swap is under way during the first listings."""

    def __init__(self, listings: int) -> None:
        super().__init__()
        self.listings = listings

    def list_directory(self, path: str) -> list[str]:
        names = super().list_directory(path)
        if self.listings > 0:
            self.listings -= 1
            return sorted({*names, f"{self._taken(names)}.swap"} - {self._taken(names)})
        return names

    def _taken(self, names: list[str]) -> str:
        return [name for name in names if name.endswith(".log")][1]


def test_a_listing_waits_for_a_swap_to_end(directory: str) -> None:
    assert list_segments(SwappingFiles(5), directory) == list_segments(FS, directory)
    with pytest.raises(OSError, match="swapping"):
        list_segments(SwappingFiles(1 << 20), directory)
