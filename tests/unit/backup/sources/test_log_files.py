"""A segment that is swapped for its cleaned one while a backup locates a batch in it."""

from __future__ import annotations

import pytest

from moldau.backup.sources.log_files import LogFiles, end_of_files
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.record_batch import parse_header
from moldau.storage.files.log_paths import LOG_SUFFIX, OFFSET_INDEX_SUFFIX
from moldau.storage.files.memory_files import MemoryFiles, OpenMemoryFile
from moldau.storage.log_config import LogConfig
from tests.unit.storage.stories import NOW_MS, append, open_log

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
DIRECTORY = "/t-0"
FIRST = f"{DIRECTORY}/00000000000000000000.log"


class SwappingFiles(MemoryFiles):
    """When a segment is opened, its cleaned one takes its name, without an index: the old index was read before."""

    def __init__(self) -> None:
        super().__init__(lambda: NOW_MS)
        self.cleaned: tuple[str, bytes] | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OpenMemoryFile:
        if self.cleaned is not None and path == self.cleaned[0]:
            data, self.cleaned = self.cleaned[1], None
            self.unlink(path)
            self.unlink(path.replace(LOG_SUFFIX, OFFSET_INDEX_SUFFIX))
            file = super().open(path, create=True)
            file.append([data])
            file.close()
        return super().open(path, create=create, read_only=read_only)


@pytest.mark.parametrize("kept", [slice(-3, None), slice(1, None, 3)], ids=["behind its end", "amid a batch"])
def test_a_batch_is_not_looked_for_at_its_place_before_the_cleaning(kept: slice) -> None:
    """There the position of the old index is in the cleaned segment."""
    files = SwappingFiles()
    log = open_log(files, DIRECTORY, CONFIG)
    while len(log.segments) < 3:
        append(log, "value", timestamp=NOW_MS)
    data = files.read(FIRST)
    batches = [data[at : at + header.size] for at, header in iterate_batches(data)][kept]
    wanted = parse_header(batches[len(batches) // 2]).base_offset
    files.cleaned = FIRST, b"".join(batches)
    reader = LogFiles(files, DIRECTORY)
    assert parse_header(reader.read(wanted, 0)).base_offset == wanted
    reader.close()


def test_the_end_of_a_log_is_not_that_of_an_earlier_segment() -> None:
    files = SwappingFiles()
    log = open_log(files, DIRECTORY, CONFIG)
    while len(log.segments) < 3:
        append(log, "value", timestamp=NOW_MS)
    log.roll(NOW_MS)
    path = log.segments[-2].path(".log")
    data = files.read(path)
    *_, (last, _) = iterate_batches(data)
    files.cleaned = path, data[last:]
    assert end_of_files(files, DIRECTORY) == (0, log.end_offset)
