"""What erasing records costs beside cleaning the same log, without a broker: `python bench/micro/log_erasing.py`.

CPU seconds of both over the same bytes, in turns, and their ratios. The records of `--keys` keys are erased, drawn at
random, so that nearly every segment is rewritten. The keys come at random too. In `clean_segments` each key comes ten
times: the cleaner keeps one record in ten, and these are in nearly every batch. In `clean_alike` it drops about as many
records as are erased, so that both write the same bytes. The rewritten segments are removed again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.dirty_logs import DirtyLog, LogKind, write_log
from bench.micro.log_cleaning import NOW_MS, request_for
from moldau.protocol.compression import Codec
from moldau.protocol.erase_orders import Run, packed_runs
from moldau.storage.compaction.cleaning import clean_segments
from moldau.storage.erasure.erasing import EraseRequest, SegmentErased, SegmentToErase, erase_segments
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.unfinished_cleaning import remove_cleaned

RECORDS_OF_KEY = 10
ROUNDS = 3


def erase_request_for(log: DirtyLog, keys: int) -> EraseRequest:
    request = request_for(log, 0)
    offsets = Random(1).sample(range(log.end_offset), keys * RECORDS_OF_KEY)
    bounds = [each.base_offset for each in request.segments] + [log.end_offset]
    before = [None, *request.segments]
    return EraseRequest(
        directory=request.directory,
        truncation_count=0,
        segments=tuple(map(SegmentToErase, request.segments, bounds[1:], before)),
        orders=(packed_runs(Run(each, each) for each in sorted(offsets)),),
        index_interval_bytes=request.index_interval_bytes,
        expanded_bytes_max=request.expanded_bytes_max,
        expanded_record_bytes_max=request.expanded_record_bytes_max,
        compression_type=None,
        compression_level=None,
        io_buffer_size=request.limits.io_buffer_size,
    )


def cpu_s(log: DirtyLog, work: str, keys: int) -> tuple[float, int]:
    """The CPU time (s) of one round, and the number of erased records."""
    fs, erased, began = LocalFiles(), 0, time.process_time()
    if work == "clean":
        for _ in clean_segments(fs, request_for(log, 0)):
            pass
    else:
        for event in erase_segments(fs, erase_request_for(log, keys)):
            erased += sum(each.records_count for each in event.erased) if isinstance(event, SegmentErased) else 0
    spent = time.process_time() - began
    remove_cleaned(fs, str(log.directory))
    return spent, erased


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--keys", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        for name, value_size, codec in (("1 KiB, lz4", 1024, Codec.LZ4), ("100 B", 100, Codec.NONE)):
            count, erased = arguments.records, arguments.keys * RECORDS_OF_KEY
            logs = {
                work: write_log(
                    Path(home) / f"{work} {name.replace(' ', '')}",
                    LogKind(name, count, keys, value_size, codec, True),
                    NOW_MS,
                )
                for work, keys in (("clean", count // RECORDS_OF_KEY), ("clean_alike", count * count // (2 * erased)))
            }
            works = {"clean": "clean", "clean_alike": "clean", "erase": "erase"}
            rounds = [
                {name: cpu_s(logs.get(name, logs["clean"]), work, arguments.keys) for name, work in works.items()}
                for _ in range(ROUNDS)
            ]
            told = {work: round(statistics.median(each[work][0] for each in rounds), 3) for work in works}
            ratios = {
                f"times_{other}": round(statistics.median(each["erase"][0] / each[other][0] for each in rounds), 2)
                for other in logs
            }
            size = sum(path.stat().st_size for path in logs["clean"].directory.glob("*.log"))
            print(
                json.dumps({"kind": name, "bytes": size, "erased": rounds[0]["erase"][1], **told, **ratios}),
                flush=True,
            )


if __name__ == "__main__":
    main()
