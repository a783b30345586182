"""The memory of a scan does not grow with the topic, also if the caller is slower than the threads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.log_config import LogConfig
from tests.support.segments import write_checkpoints, write_partition

BATCHES = 400
RECORDS = 1000
"""Of a batch; each has 1,000 bytes, so that the topic has 400 MB."""
MEMORY_MB_MAX = 300
PROGRAM = r"""
import re, sys, time
from pathlib import Path
import moldau
rows = 0
for batch in moldau.read_topic(sys.argv[1], "t", threads=2):
    rows += batch.num_rows
    time.sleep(0.001)
peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())  # ru_maxrss has that of the parent
print(rows, int(peak[1]) // 1000)
"""


def batches() -> Iterator[bytes]:
    value = bytes(range(250)) * 4
    encoded = bytearray(build_batch([Record(b"k", value, 1) for _ in range(RECORDS)], codec=Codec.LZ4))
    for number in range(BATCHES):
        encoded[:8] = (number * RECORDS).to_bytes(8, "big")  # The checksum does not cover the base offset.
        yield bytes(encoded)


@pytest.mark.slow
def test_a_scan_of_400_megabytes_takes_less_than_300(tmp_path: Path) -> None:
    end = write_partition(tmp_path, batches(), config=LogConfig())
    write_checkpoints(tmp_path, {("t", 0): end})
    told = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    rows, memory_mb = map(int, told.stdout.split())
    assert rows == BATCHES * RECORDS
    assert memory_mb <= MEMORY_MB_MAX
