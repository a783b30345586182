"""`moldau follow-table`: the time until a produced record is in the table, and the rate of one process.

The table is an Apache Iceberg table in a directory, with the default interval between commits. The time is measured
from a record's timestamp to the snapshot with the record, for the oldest record of each snapshot.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.processes import cpu_time_with_children
from bench.spark_reads import TIERED, await_high_watermarks, produce
from bench.subjects import Bench, RunningBroker, remove_server

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLLOWED: Final = "followed"
TAKEN: Final = "taken"
RATE: Final = 10_000_000
"""The size of the values (bytes) that are produced in a second."""
VALUE_SIZE: Final = 1_000
FOLLOWED_S: Final = 120.0
FOLLOWED_S_QUICK: Final = 75.0
SLICE_S: Final = 0.1
ENDED_S_MAX: Final = 60.0


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the cases that `form.case` selects: `lag` and `rate`."""
    server = bench.new_server(OURS, extra=("log.retention.ms=-1",))
    server.format()
    figures: list[Figure] = []
    with RunningBroker(server) as running:
        if form.case in "lag":
            runs = [
                measure_lag(running, server.directory / f"lag-{number}", form, number) for number in range(form.rounds)
            ]
            figures += lag_figures(runs)
        if form.case in "rate":
            count = TIERED.records_quick if form.is_quick else TIERED.records
            produce(running, TAKEN, TIERED, count)
            await_high_watermarks(server.data, TAKEN, count)
            seconds = [
                catch_up_seconds(server.data, server.directory / f"rate-{number}") for number in range(form.rounds)
            ]
            note = f"{count:,} records, {TIERED}; from the start of the process to its end, Parquet with zstd"
            rates = [count / each for each in seconds]
            figures.append(Figure("lake: a topic taken by one process", "rows/s", {OURS: rates}, False, note))
    remove_server(server)
    return figures


def lag_figures(runs: list[tuple[float, float, int]]) -> list[Figure]:
    """Make figures from the results of `measure_lag`."""
    lags, cpus = [run[0] for run in runs], [run[1] for run in runs]
    note = f"{runs[0][2]:,} records of {VALUE_SIZE:,} B, {RATE / 1e6:.0f} MB/s; the default interval between commits"
    return [
        Figure("lake: 10 MB/s followed: longest time until a record is in the table", "s", {OURS: lags}, note=note),
        Figure("lake: 10 MB/s followed: CPU of the process", "s of a minute", {OURS: cpus}),
    ]


def measure_lag(running: RunningBroker, warehouse: Path, form: RunForm, number: int) -> tuple[float, float, int]:
    """Produce to a topic and follow it. Returns the longest time until a record was in the table (s), the CPU time of
    the process in a minute (s), and the number of rows.
    """
    topic = f"{FOLLOWED}-{number}"
    wanted_s = FOLLOWED_S_QUICK if form.is_quick else FOLLOWED_S
    address = f"127.0.0.1:{running.server.port}"
    running.connect().close()
    source = produce_at_rate(address, topic, wanted_s)
    next(source)  # The topic exists from the first record on.
    await_high_watermarks(running.server.data, topic, 1)
    following = subprocess.Popen(follow_table_command(running.server.data, topic, warehouse), stderr=subprocess.DEVNULL)
    began = time.perf_counter()
    for _ in source:
        pass
    cpu = cpu_time_with_children(following.pid) * 60 / (time.perf_counter() - began)
    following.terminate()
    assert following.wait(ENDED_S_MAX) == 0
    table = load_table(warehouse, topic)
    rows = table.scan(selected_fields=("partition", "offset", "timestamp")).to_arrow()
    times = {
        (partition, offset): time_us / 1e6
        for partition, offset, time_us in zip(
            rows["partition"].to_pylist(),
            rows["offset"].to_pylist(),
            rows["timestamp"].cast("int64").to_pylist(),
            strict=True,
        )
    }
    longest = max(each for each in snapshot_lags_s(table, times))
    print(
        f"  lake: {len(times):,} rows, {len(table.snapshots())} snapshots, {longest:.1f} s, {cpu:.1f} s of CPU a minute"
    )
    return longest, cpu, len(times)


def snapshot_lags_s(table: Any, times: dict[tuple[int, int], float]) -> Iterator[float]:
    """The lag of each snapshot with new records: the time (s) from the oldest of them to the snapshot."""
    before: dict[str, int] = {}
    for snapshot in table.snapshots():
        offsets: dict[str, int] = json.loads(snapshot.summary["moldau.offsets"])
        starts = [(int(each), before.get(each, 0)) for each, end in offsets.items() if end > before.get(each, 0)]
        if starts:
            yield snapshot.timestamp_ms / 1000 - min(times[start] for start in starts)
        before = offsets


def produce_at_rate(address: str, topic: str, seconds: float) -> Iterator[None]:
    """Produce at `RATE` for some seconds, after a first record, which is there when the first step of the generator
    returns.
    """
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 20})
    filler = bytes(range(256)) * 4
    producer.produce(topic, b"first")
    assert producer.flush(30) == 0
    yield
    began = time.perf_counter()
    sent = 0
    while (passed := time.perf_counter() - began) < seconds:
        for number in range(sent, int(passed * RATE / VALUE_SIZE)):
            producer.produce(topic, b"%016d" % number + filler[: VALUE_SIZE - 16], b"key-%08d" % (number % 100_000))
            sent = number + 1
        producer.poll(0)
        time.sleep(SLICE_S)
        yield
    assert producer.flush(60) == 0


def catch_up_seconds(data: Path, warehouse: Path) -> float:
    """Return the time (s) in which one process makes the table of an existing topic."""
    began = time.perf_counter()
    subprocess.run([*follow_table_command(data, TAKEN, warehouse), "--once"], check=True, capture_output=True)
    seconds = time.perf_counter() - began
    print(f"  lake: taken in {seconds:.1f} s", flush=True)
    return seconds


def follow_table_command(data: Path, topic: str, warehouse: Path) -> list[str]:
    program = str(Path(sys.executable).with_name("moldau"))
    told = ["--path", str(data), "--topic", topic, "--warehouse", str(warehouse), "--mode", "append", "--no-progress"]
    return [program, "follow-table", *told]


def load_table(warehouse: Path, topic: str) -> Any:
    """Load the table of a topic."""
    from pyiceberg.catalog import load_catalog

    uri = f"sqlite:///{warehouse}/catalog.db"
    name = topic.replace("-", "_")
    return load_catalog("moldau", type="sql", uri=uri, warehouse=warehouse.as_uri()).load_table(f"default.{name}")
