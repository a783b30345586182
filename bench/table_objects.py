"""A tiered topic as Arrow batches from an object store, without Spark, beside what obstore alone downloads of it.

A broker copies the segments to an S3 server on this machine (versitygw) and ends. Then the two take turns on all cores,
which the server needs as well; of each the first of two passes warms it up. Then both read the same objects through a
process that makes a distant store of the server (`slow_store`).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Final

from bench import spark_objects
from bench.cold_read import broker_settings
from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.object_server import REGION
from bench.slow_store import DELAY_S, RATE, SlowStore
from bench.spark_reads import PARTITIONS, TIERED, object_server, produce
from bench.subjects import Bench, RunningBroker, remove_server

PASSES: Final = 2


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure a scan of all columns. No figures if versitygw is missing."""
    with ExitStack() as stack:
        endpoint = object_server(bench, stack)
        if endpoint is None:
            return []
        server = bench.new_server(OURS, extra=("log.retention.ms=-1", *broker_settings(endpoint)))
        server.format()
        config = spark_objects.topic_config(is_quick=form.is_quick)
        count = TIERED.records_quick if form.is_quick else TIERED.records
        with RunningBroker(server) as running:
            produce(running, spark_objects.TOPIC, TIERED, count, config)
            # The last segment of each partition stays with the broker.
            left = PARTITIONS * int(config["segment.bytes"])
            spark_objects.await_copies(endpoint, count * TIERED.value_size - left)
        remove_server(server)
        size = sum(each for _, each in spark_objects.segment_objects(endpoint))
        near = [(scan_seconds(endpoint), download_seconds(endpoint)) for _ in range(form.rounds)]
        slow = stack.enter_context(SlowStore(bench.free_pair(), endpoint))
        distant = [(scan_seconds(slow.endpoint), download_seconds(slow.endpoint)) for _ in range(form.rounds)]
    what = f"of {DELAY_S * 1000:.0f} ms and {RATE / 1e6:.0f} MB/s a connection"
    return [
        *figures("tables: from an object store, two cores: all columns", size, near, "versitygw beside it"),
        *figures(f"tables: from an object store {what}: all columns", size, distant, "a process in front of versitygw"),
    ]


def figures(name: str, size: int, runs: Sequence[tuple[float, float]], where: str) -> list[Figure]:
    """Make the figures of reads of `size` bytes of objects. `runs` has the times (s) of a scan and of obstore alone."""
    shares = [100 * alone / scan for scan, alone in runs]
    rates = [size / scan / 1e6 for scan, _ in runs]
    alone_rate = median(size / alone / 1e6 for _, alone in runs)
    note = f"{size >> 20} MiB of segments, {TIERED}; obstore alone: {alone_rate:,.0f} MB/s; {where}"
    return [
        Figure(f"{name}, of what obstore alone downloads", "%", {OURS: shares}, False, note),
        Figure(name, "MB/s", {OURS: rates}, False),
    ]


def download_seconds(endpoint: str) -> float:
    """The time (s) in which obstore alone downloads the objects."""
    for _ in range(PASSES):
        began = time.perf_counter()
        asyncio.run(spark_objects.download_mb_per_s(endpoint))
        seconds = time.perf_counter() - began
    print(f"  tables from an object store: obstore alone {seconds:.2f} s", flush=True)
    return seconds


def scan_seconds(endpoint: str) -> float:
    """The time (s) of a scan in a process of its own."""
    command = [sys.executable, "-m", "bench.table_objects", endpoint]
    seconds = float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    print(f"  tables from an object store: scan {seconds:.2f} s", flush=True)
    return seconds


def main() -> None:
    for _ in range(PASSES):
        began = time.perf_counter()
        scan(sys.argv[1])
        seconds = time.perf_counter() - began
    print(seconds)


def scan(endpoint: str) -> int:
    """Scan all columns of the topic. Returns the number of rows."""
    import moldau

    options = {"moldau.tiered.storage.endpoint": endpoint, "moldau.tiered.storage.region": REGION}
    return sum(batch.num_rows for batch in moldau.read_topic(spark_objects.URL, spark_objects.TOPIC, options=options))


if __name__ == "__main__":
    main()
