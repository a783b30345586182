"""The speed and the resource usage of the log cleaner: both brokers are warmed up, then clean the same files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from bench.dirty_logs import (
    CLEANER_SETTINGS,
    OTHER_TOPIC,
    DirtyLog,
    LogKind,
    make_compacted,
    prepare_server,
    size_of,
    wait_until_cleaned,
    write_log,
)
from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.processes import children, cpu_time_with_children, memory
from bench.start import compile_packages
from bench.subjects import Bench, RunningBroker, Server, die_with_parent, remove_server
from moldau.protocol.compression import Codec

DEDUPE_BUFFER_MB: Final = (128 << 20) / 1e6
"""The default of log.cleaner.dedupe.buffer.size."""
KINDS: Final = (
    LogKind("1 KiB values, lz4", 1_000_000, 100_000, 1024, Codec.LZ4),
    LogKind("100-byte values, no codec", 4_000_000, 400_000, 100, Codec.NONE),
    LogKind("10 M keys, 100-byte values", 12_000_000, 10_000_000, 100, Codec.NONE),
    LogKind("keys at random, 100-byte values, lz4", 3_000_000, 900_000, 100, Codec.LZ4, is_shuffled=True),
)
QUICK_DIVISOR: Final = 40
WARM_UP_LOGS: Final = 1
"""The number of logs that are cleaned before the measurement, so that the JVM has compiled the cleaner's loops."""
SAMPLE_S: Final = 0.01
SETTLING_S: Final = 1.0
WORKER: Final = "moldau.broker.runtime.worker_process"


class CleaningRun(NamedTuple):
    """The cost of cleaning one log. The CPU time is that of the broker and its worker process."""

    seconds: float
    cpu_s: float
    worker_mb: float
    """The peak of a worker process's anonymous memory; 0 if the broker has none."""
    left_size: int


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the cleaning of each kind of log, in all brokers in turns. A broker keeps running, and each round cleans
    a topic of its own.
    """
    compile_packages()
    idle_mb = _idle_worker_mb()
    figures: list[Figure] = []
    for kind in KINDS:
        if form.case not in kind.name:
            continue
        measured = kind.with_fewer_records(QUICK_DIVISOR) if form.is_quick else kind
        log = write_log(bench.directory / "dirty", measured, time.time_ns() // 1_000_000)
        try:
            runs = _runs(bench, form, measured, log)
        finally:
            shutil.rmtree(log.directory)
        figures += _figures(kind, measured, runs, idle_mb)
    return figures


def _runs(bench: Bench, form: RunForm, kind: LogKind, log: DirtyLog) -> dict[str, list[CleaningRun]]:
    topics = [f"log-{number}" for number in range(WARM_UP_LOGS + form.rounds)]
    servers = {name: bench.new_server(name, extra=CLEANER_SETTINGS) for name in bench.names}
    runs: dict[str, list[CleaningRun]] = {name: [] for name in servers}
    running: dict[str, RunningBroker] = {}
    try:
        for name, server in servers.items():
            prepare_server(server, [(topic, log) for topic in topics])
            running[name] = RunningBroker(server)
            running[name].connect().produce_with_retries(OTHER_TOPIC)
        time.sleep(SETTLING_S)
        for number, topic in enumerate(topics):
            for name, server in servers.items():
                done = _clean(server, running[name], topic, log.end_offset)
                took = f"{done.seconds:.2f} s, CPU {done.cpu_s:.2f} s, {done.left_size / 1e6:.0f} MB left"
                print(f"  cleaner {name}: {kind.name}: {took}{_round(number)}", flush=True)
                if number >= WARM_UP_LOGS:
                    runs[name].append(done)
    finally:
        for each in running.values():
            each.stop()
        for server in servers.values():
            remove_server(server)
    return runs


def _round(number: int) -> str:
    return " (warming up)" if number < WARM_UP_LOGS else ""


def _clean(server: Server, running: RunningBroker, topic: str, end_offset: int) -> CleaningRun:
    """Make a topic compacted, and measure the cleaning: from the response to that request until the checkpoint has
    `end_offset`.
    """
    client = running.connect()
    cpu_before = cpu_time_with_children(running.pid)
    with WorkerMemory(running.pid) as worker:
        make_compacted(client, [topic])
        began = time.perf_counter()
        wait_until_cleaned(server, topic, end_offset)
        seconds = time.perf_counter() - began
    client.close()
    time.sleep(SETTLING_S)  # the worker ends: its CPU time counts once the broker has waited for it
    cpu_s = cpu_time_with_children(running.pid) - cpu_before
    return CleaningRun(seconds, cpu_s, worker.peak_mb, size_of(server, topic))


class WorkerMemory:
    """Measures the peak of a child process's anonymous memory during a `with` block, with a sample every 10 ms."""

    def __init__(self, pid: int) -> None:
        self.peak_mb = 0.0
        self._pid = pid
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            for child in children(self._pid):
                try:
                    self.peak_mb = max(self.peak_mb, memory(child).anonymous_mb)
                except ProcessLookupError:
                    continue


def _idle_worker_mb() -> float:
    """Return the memory (MB) of a worker process without work."""
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", WORKER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, preexec_fn=die_with_parent
    ) as process:
        time.sleep(SETTLING_S)
        held_mb = memory(process.pid).anonymous_mb
        assert process.stdin is not None
        process.stdin.close()
    return held_mb


def _figures(kind: LogKind, measured: LogKind, runs: dict[str, list[CleaningRun]], idle_mb: float) -> list[Figure]:
    name = f"log cleaner, {kind.name}"
    sizes = f"{measured.records:,} records of {measured.keys:,} keys, one thread or worker, files in the page cache"
    held = f"anonymous, {DEDUPE_BUFFER_MB:.0f} MB of it the dedupe buffer; an idle worker holds {idle_mb:.0f} MB"

    def values(of: Callable[[CleaningRun], float]) -> dict[str, list[float]]:
        return {broker: [of(run) for run in mine] for broker, mine in runs.items()}

    grown = {OURS: [run.worker_mb - idle_mb for run in runs[OURS]]}
    return [
        Figure(f"{name}: rate", "records/s", values(lambda run: measured.records / run.seconds), False, sizes),
        Figure(f"{name}: user + system CPU", "s", values(lambda run: run.cpu_s), note="broker and worker process"),
        Figure(f"{name}: memory of the worker above an idle one", "MB", grown, note=held),
        Figure(f"{name}: left in the log", "MB", values(lambda run: run.left_size / 1e6)),
    ]
