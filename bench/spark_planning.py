"""The cost of planning a read of very many segments. `python -m bench.spark_planning DIRECTORY` plans in a process of
its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.processes import peak_memory_mb
from bench.subjects import Bench
from bench.synthetic_bucket import SyntheticBucket
from moldau.storage.checkpoints.text_checkpoint import HIGH_WATERMARK_CHECKPOINT, write_offsets
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.files.log_paths import LOG_SUFFIX, offset_name
from moldau.tables.options.option_values import StoreAddress
from moldau.tables.options.read_options import parse_options
from moldau.tables.origins.blocking_storage import BlockingStorage
from moldau.tables.origins.port import Origin
from moldau.tables.origins.tiered_store import TieredStore
from moldau.tables.planning.planner import Planner

SEGMENTS: Final = 100_000
SEGMENTS_QUICK: Final = 10_000
PARTITIONS: Final = 100
OFFSETS: Final = 100_000
"""The number of offsets in a segment."""
SEGMENT_SIZE: Final = 64 << 20
"""The size of a segment file, which is a hole and takes no space."""
TOPIC: Final = "many"


class PlanUsage(NamedTuple):
    """The resources that a process used to make its plan."""

    seconds: float
    cpu_s: float
    memory_mb: float
    tasks: int


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    directory = bench.directory / "many-segments"
    count = SEGMENTS_QUICK if form.is_quick else SEGMENTS
    make_segments(directory, count)
    runs = [plan_aside(directory) for _ in range(form.rounds)]
    many = 10 * count
    tiered = [plan_aside(many) for _ in range(form.rounds)]
    tiered_note = (
        f"{many:,} segments of {PARTITIONS} partitions, {tiered[0].tasks:,} tasks; {tiered[0].cpu_s:.2f} s of CPU, "
        "which include making the listings and manifests; a real store answers later"
    )
    note = f"{count:,} segments of {PARTITIONS} partitions, {runs[0].tasks:,} tasks; {runs[0].cpu_s:.2f} s of CPU"
    return [
        Figure("spark: planning 100,000 segments", "s", {OURS: [run.seconds for run in runs]}, note=note),
        Figure("spark: planning 100,000 segments: memory", "MB", {OURS: [run.memory_mb for run in runs]}),
        Figure(
            "spark: planning 1,000,000 tiered segments",
            "s",
            {OURS: [run.seconds for run in tiered]},
            note=tiered_note,
        ),
        Figure("spark: planning 1,000,000 tiered segments: memory", "MB", {OURS: [run.memory_mb for run in tiered]}),
    ]


def make_segments(directory: Path, count: int) -> None:
    """Make partitions of sealed segments. The high watermark is where the last one begins."""
    ends = {}
    per_partition = count // PARTITIONS
    for partition in range(PARTITIONS):
        home = directory / f"{TOPIC}-{partition}"
        home.mkdir(parents=True)
        for number in range(per_partition + 1):
            path = home / offset_name(number * OFFSETS, LOG_SUFFIX)
            path.touch()
            if number < per_partition:
                os.truncate(path, SEGMENT_SIZE)
        ends[TOPIC, partition] = per_partition * OFFSETS
    write_offsets(LocalFiles(), str(directory), HIGH_WATERMARK_CHECKPOINT, ends)


def plan_aside(directory: Path | int) -> PlanUsage:
    """Plan in a process of its own: a read of a directory, or of a number of tiered segments."""
    told = subprocess.run(
        [sys.executable, "-m", "bench.spark_planning", str(directory)], capture_output=True, text=True, check=True
    )
    return PlanUsage(*json.loads(told.stdout))


def main() -> None:
    began, cpu_began = time.perf_counter(), time.process_time()
    options = parse_options({"path": "." if sys.argv[1].isdecimal() else sys.argv[1], "subscribe": TOPIC})
    origins: list[Origin] = []
    if sys.argv[1].isdecimal():
        bucket = SyntheticBucket(TOPIC, PARTITIONS, int(sys.argv[1]) // PARTITIONS, OFFSETS, SEGMENT_SIZE)
        origins = [TieredStore(StoreAddress("s3://many/segments"), BlockingStorage(bucket))]
        options = replace(options, directories=())
    plan = Planner(LocalFiles(), options, origins=origins).plan()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    print(json.dumps([seconds, cpu, peak_memory_mb(), len(plan.tasks)]))


if __name__ == "__main__":
    main()
