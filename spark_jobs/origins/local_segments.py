"""Opening a listed .log file in a task, even if it was renamed meanwhile."""

from __future__ import annotations

from typing import NamedTuple

from spark_jobs.origins.port import Slice
from spark_jobs.refusals import DataLost, SegmentReplaced
from storage.files.local_files import LocalFiles
from storage.files.log_paths import DELETED_SUFFIX
from storage.files.port import File


class LocalSegments(NamedTuple):
    """The `SegmentSource` of log directories that the tasks see under the paths of the driver."""

    def open(self, wanted: Slice) -> File:
        """Open the file that had the listed size: under its name, or with the suffix `.deleted`, which it has for a
        minute after retention or compaction.
        """
        files = LocalFiles()
        segment = wanted.segment
        is_there = False
        for path in (segment.name, segment.name + DELETED_SUFFIX):
            try:
                file = files.open(path, read_only=True)
            except FileNotFoundError:
                continue
            size = file.size()
            if size == segment.size or (segment.is_growing and size > segment.size):
                return file
            file.close()
            is_there = True
        if is_there:
            raise SegmentReplaced(f"{wanted}: compaction replaced {segment.name} after the read was planned")
        raise DataLost(f"{wanted}: {segment.name} was deleted after the read was planned")
