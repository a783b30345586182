"""A table and the segments behind it as one relation: the time until its first row, and a scan of all its rows, beside
a scan of the table alone and a scan of these segments alone.

Each measurement is a process of its own on one core, which decodes in its only thread. The first pass warms it up. The
three scans of a pass follow one another, and are only compared with each other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.spark_reads import await_high_watermarks
from bench.subjects import Bench, RunningBroker, remove_server
from bench.tables import Topic, produce, produce_records

if TYPE_CHECKING:
    from collections.abc import Iterable

TOPIC: Final = Topic(1024, "lz4", 400_000, 100_000)
TAIL_SHARE: Final = 4
"""The table has this many records for each record of the tail."""
MODES: Final = ("append", "upsert")
PASSES: Final = 4


class ScanPass(NamedTuple):
    """The results of one pass, in seconds."""

    first_row: float
    live: float
    table: float
    topic: float
    rows: int


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the modes that `form.case` selects: `append` and `upsert`."""
    server = bench.new_server(OURS, extra=("log.retention.ms=-1",))
    server.format()
    figures: list[Figure] = []
    count = TOPIC.records_quick if form.is_quick else TOPIC.records
    with RunningBroker(server) as running:
        produce(running, TOPIC, count)
        await_high_watermarks(server.data, TOPIC.name, count)
        for mode in MODES:
            follow_topic(server.data, warehouse_of(server.directory, mode), mode)
        produce_records(f"127.0.0.1:{server.port}", TOPIC, count // TAIL_SHARE)
        await_high_watermarks(server.data, TOPIC.name, count + count // TAIL_SHARE)
        for mode in MODES:
            if form.case in mode:
                warehouse = warehouse_of(server.directory, mode)
                figures += figures_of(mode, [run_in_process(server.data, warehouse) for _ in range(form.rounds)], count)
    remove_server(server)
    return figures


def warehouse_of(directory: Path, mode: str) -> Path:
    return directory / f"warehouse-{mode}"


def figures_of(mode: str, runs: list[ScanPass], count: int) -> list[Figure]:
    """The time until the first row, and the time of the scan relative to the sum of the two others."""
    of_mode = "" if mode == "append" else ", by key"
    note = f"{count:,} records in the table, {count // TAIL_SHARE:,} behind it, {TOPIC}; one core"
    times = [each.live / (each.table + each.topic) for each in runs]
    return [
        Figure(f"live: first row{of_mode}", "s", {OURS: [each.first_row for each in runs]}, note=note),
        Figure(f"live: all rows{of_mode}, in times the table alone and the topic alone", "×", {OURS: times}),
        Figure(f"live: all rows{of_mode}", "rows/s", {OURS: [each.rows / each.live for each in runs]}, False),
    ]


def follow_topic(data: Path, warehouse: Path, mode: str) -> None:
    program = str(Path(sys.executable).with_name("moldau"))
    told = ["--path", str(data), "--topic", TOPIC.name, "--warehouse", str(warehouse), "--mode", mode, "--once"]
    subprocess.run([program, "follow-table", *told], check=True, capture_output=True)


def run_in_process(data: Path, warehouse: Path) -> ScanPass:
    """Run one measurement in a process of its own."""
    command = [sys.executable, "-m", "bench.live", str(data), str(warehouse)]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(f"  live: {told.strip()}", flush=True)
    return ScanPass(*json.loads(told))


def main() -> None:
    data, warehouse = sys.argv[1:]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    passes = [measure_pass(data, warehouse) for _ in range(PASSES)][1:]
    rows = {each.rows for each in passes}
    assert len(rows) == 1
    print(json.dumps([*(min(times) for times in list(zip(*passes, strict=True))[:-1]), rows.pop()]))


def measure_pass(data: str, warehouse: str) -> ScanPass:
    """Measure a live table from its pin to its first and last row, then the table alone, then the records behind the
    table.
    """
    import moldau

    began = time.perf_counter()
    found = moldau.table(warehouse, TOPIC.name, live=data, threads=0)
    batches = iter(found.reader())
    rows = next(batches).num_rows
    first_row = time.perf_counter() - began
    rows += count_rows(batches)
    live = time.perf_counter() - began
    table, _ = timed(lambda: count_rows(moldau.table(warehouse, TOPIC.name, threads=0).reader()))
    starts = dict(found.table_offsets)
    topic, _ = timed(lambda: count_rows(moldau.read_topic(data, TOPIC.name, start=starts, columns=COLUMNS, threads=0)))
    return ScanPass(first_row, live, table, topic, rows)


COLUMNS: Final = ("key", "partition", "offset", "timestamp", "value")
"""The columns of the table."""


def timed(work: Any) -> tuple[float, int]:
    began = time.perf_counter()
    count = work()
    return time.perf_counter() - began, count


def count_rows(batches: Iterable[Any]) -> int:
    return sum(batch.num_rows for batch in batches)


if __name__ == "__main__":
    main()
