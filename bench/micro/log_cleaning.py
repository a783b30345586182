"""The cost of cleaning a log, without a broker: `python bench/micro/log_cleaning.py [directory] [--records N]`.

CPU microseconds a record, of each phase and in all, the peak of resident memory, and a digest of what is left in the
log: two forms of the cleaner are equal if the digests are. A round over a dirty log is followed by a round over the
same log with the first half of it clean.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.dirty_logs import SEGMENT_SIZE, DirtyLog, LogKind, write_log
from bench.processes import peak_memory_mb
from moldau.protocol.compression import Codec
from moldau.storage.compaction.cleaning import clean_segments
from moldau.storage.compaction.request import BytesProcessed, CleanerLimits, CleaningDone, CleaningRequest
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.segment_swap import SegmentCleaned, SegmentSize
from moldau.storage.log.unfinished_cleaning import remove_cleaned

RECORDS = 1_000_000
NOW_MS = 1_000_000_000_000
SALT = bytes(range(32))
KINDS = (
    ("1 KiB, lz4", 10, 1024, Codec.LZ4, False, 5),
    ("100 B", 10, 100, Codec.NONE, False, 1),
    ("100 B, mostly unique", 1.2, 100, Codec.NONE, False, 1),
    ("100 B, at random", 3, 100, Codec.NONE, True, 1),
    ("100 B, lz4, at random", 3, 100, Codec.LZ4, True, 1),
    ("100 B, zstd, at random", 3, 100, Codec.ZSTD, True, 2),
)
"""For each kind of log: name, records of each key, size of a value, codec, whether keys come at random, divisor of the
number of records.
"""


def request_for(log: DirtyLog, first_dirty_offset: int) -> CleaningRequest:
    segments = sorted((int(path.stem), path.stat().st_size) for path in log.directory.glob("*.log"))
    return CleaningRequest(
        directory=str(log.directory),
        truncation_count=0,
        segments=tuple(SegmentSize(*each) for each in segments if each[0] < log.end_offset),
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=log.end_offset,
        aborted_with_later_marker=(),
        last_records={},
        segment_bytes=SEGMENT_SIZE,
        segment_index_bytes=10 << 20,
        index_interval_bytes=4096,
        delete_retention_ms=86_400_000,
        expanded_bytes_max=1 << 30,
        compression_type=None,
        compression_level=None,
        limits=CleanerLimits(),
        salt=SALT,
        now_ms=NOW_MS,
    )


def measure(log: DirtyLog, first_dirty_offset: int) -> dict[str, object]:
    """Run one round. The cleaned segments are removed afterwards."""
    fs = LocalFiles()
    spent = {"map": 0.0, "copy": 0.0}
    digest = hashlib.sha256()
    began = last = time.process_time()
    next_dirty = 0
    kept = 0
    for event in clean_segments(fs, request_for(log, first_dirty_offset)):
        now = time.process_time()
        phase = "map"
        if isinstance(event, BytesProcessed):
            is_map = not event.bytes_written and not kept and not digest_of_copying(fs, log)
            phase = "map" if is_map else "copy"
        elif isinstance(event, SegmentCleaned):
            phase = "copy"
        else:
            assert isinstance(event, CleaningDone)
            next_dirty, kept = event.next_dirty_offset, event.statistics.messages_written
        spent[phase] += now - last
        last = time.process_time()
    spent["all"] = time.process_time() - began
    count = next_dirty or 1
    for path in sorted(log.directory.glob("*.cleaned")):
        digest.update(path.name.encode() + path.read_bytes())
    remove_cleaned(fs, str(log.directory))
    return {
        "next_dirty_offset": next_dirty,
        "kept": kept,
        **{f"{name}_us": round(each / count * 1e6, 3) for name, each in spent.items()},
        "digest": digest.hexdigest()[:16],
    }


def digest_of_copying(fs: LocalFiles, log: DirtyLog) -> bool:
    """Whether the cleaner has begun to copy: a file of a cleaned segment exists."""
    return any(log.directory.glob("*.log.cleaned"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, help="for the logs; kept and used again where it is given")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--only", help="the kinds whose name has this in it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = arguments.directory or Path(temporary)
        for number, (name, each, value_size, codec, is_shuffled, divisor) in enumerate(KINDS):
            if arguments.only and arguments.only not in name:
                continue
            records = arguments.records // divisor
            kind = LogKind(name, records, int(records / each), value_size, codec, is_shuffled)
            directory = home / f"{number}-{records}"
            log = DirtyLog(directory, records) if directory.exists() else write_log(directory, kind, NOW_MS)
            for first_dirty in (0, records // 2):
                told = {"kind": name, "first_dirty": first_dirty, **measure(log, first_dirty)}
                told["peak_mb"] = round(peak_memory_mb())
                print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
