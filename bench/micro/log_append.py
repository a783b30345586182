"""The cost of appending a small idempotent batch: `python bench/micro/log_append.py [directory]`.

Prints the time (microseconds) of an append in the best of several rounds, and the share of the write call in it.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from moldau.protocol.record_batch import PREFIX_SIZE
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig

ROUNDS = 5
APPENDS = 50_000


def batches(value_size: int) -> list[memoryview]:
    record = Record(None, bytes(value_size), 1_000_000)
    return [
        memoryview(bytearray(build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)))
        for sequence in range(APPENDS)
    ]


def measure(fs: LocalFiles, directory: str, value_size: int) -> dict[str, float]:
    sent = batches(value_size)
    best = write_only = float("inf")
    config = LogConfig()
    for round_number in range(ROUNDS):
        for batch in sent:
            batch[:8] = bytes(8)
        log = Log.open(fs, f"{directory}/append-{value_size}-{round_number}-0", config, now_ms=1_000_000)
        append = log.append_as_leader
        start = time.process_time_ns()
        for batch in sent:
            result = append(batch, 0, 1_000_000)
        best = min(best, (time.process_time_ns() - start) / APPENDS)
        assert result.error == 0 and result.base_offset == APPENDS - 1
        log.close(1_000_000, clean=False)
        file = fs.open(f"{directory}/write-{value_size}-{round_number}", create=True)
        start = time.process_time_ns()
        for batch in sent:
            file.append([batch])
        write_only = min(write_only, (time.process_time_ns() - start) / APPENDS)
        file.close()
    assert sent[0].nbytes > PREFIX_SIZE
    return {
        "batch_size": sent[0].nbytes,
        "append_us": round(best / 1000, 2),
        "write_alone_us": round(write_only / 1000, 2),
    }


def main() -> None:
    gc.freeze()
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        print(json.dumps([measure(LocalFiles(), directory, size) for size in (100, 1024)], indent=1))


if __name__ == "__main__":
    main()
