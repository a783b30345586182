"""The latency of produce and fetch while the log cleaner works: their p99 during cleaning, beside the same load while
there is nothing to clean.

Requests leave at set times, in pieces of a second or less: first while there is nothing to clean, then while one log
after another is cleaned. A piece counts if the cleaner was at work from its beginning to its end.
"""

from __future__ import annotations

import shutil
import time
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from bench import load
from bench.compaction import KINDS
from bench.dirty_logs import (
    CLEANER_SETTINGS,
    OTHER_TOPIC,
    DirtyLog,
    cleaned_offset,
    make_compacted,
    prepare_server,
    write_log,
)
from bench.figures import Figure
from bench.frames import (
    Frames,
    RotatingFrames,
    batch_for_frame_size,
    fetch_error_position,
    fetch_frame,
    produce_error_position,
    produce_frame,
)
from bench.groups import RunForm
from bench.outcome import Outcome
from bench.start import compile_packages
from bench.subjects import Bench, RunningBroker, Server, remove_server
from moldau.protocol.record_batch import parse_header

PRODUCED_TOPIC: Final = "produced"
FETCHED_TOPIC: Final = "fetched"
PRODUCE_SIZE: Final = 200
FETCH_SIZE: Final = 64 << 10
FETCHED_BATCHES: Final = 512
PRODUCES_A_SECOND: Final = 1_000
FETCHES_A_SECOND: Final = 500
CONNECTIONS: Final = 4
IN_FLIGHT: Final = 5
IDLE_S: Final = 8.0
IDLE_QUICK_S: Final = 2.0
WARM_UP_DIVISOR: Final = 3
"""The warm-up of a closed loop is shortened by this divisor: at a set rate a broker is warm sooner."""
PIECE_S: Final = 1.0
PIECE_QUICK_S: Final = 0.1
KIND: Final = KINDS[1]._replace(records=5_000_000, keys=500_000)
"""The log that is cleaned. It is large, so that pieces of the load lie within the cleaning."""
QUICK_DIVISOR: Final = 10
LOGS_A_ROUND: Final = 3
QUICK_LOGS_A_ROUND: Final = 2
CLEANED_S_MAX: Final = 600.0


class LatencySamples:
    """The latencies (ns) of the pieces of one load."""

    def __init__(self) -> None:
        self._values = array("Q")

    def add(self, outcome: Outcome) -> None:
        self._values.extend(outcome.latencies_ns)

    @property
    def p99_ms(self) -> float:
        assert self._values, "no piece of the load lies within the cleaning: the logs are too short"
        return sorted(self._values)[int(0.99 * len(self._values))] / 1e6


class LatencyRun(NamedTuple):
    """The latencies of one run (p99, ms), and the observed cleaning time (s)."""

    produce_idle: float
    produce: float
    fetch_idle: float
    fetch: float
    seconds: float


class ProduceAndFetchLoad:
    """Runs produce and fetch requests at the same time, each in a thread and over connections of its own."""

    def __init__(self, server: Server) -> None:
        self._port = server.port
        now_ms = time.time_ns() // 1_000_000
        produce = produce_frame(PRODUCED_TOPIC, batch_for_frame_size(PRODUCED_TOPIC, PRODUCE_SIZE, now_ms))
        self._produces: list[Frames] = [Frames(produce, IN_FLIGHT) for _ in range(CONNECTIONS)]
        count = parse_header(fetched_batch()).records_count
        # The first record of a topic is the one by which its creation was awaited.
        fetches = [fetch_frame(FETCHED_TOPIC, 1 + number * count, FETCH_SIZE) for number in range(FETCHED_BATCHES)]
        first = FETCHED_BATCHES // CONNECTIONS
        self._fetches: list[Frames] = [RotatingFrames(fetches, index * first) for index in range(CONNECTIONS)]

    def run(self, seconds: float) -> tuple[Outcome, Outcome]:
        """Produce and fetch for some seconds."""
        with ThreadPoolExecutor(2) as threads:
            produce = threads.submit(
                self._run, self._produces, PRODUCES_A_SECOND, seconds, produce_error_position(PRODUCED_TOPIC)
            )
            fetch = threads.submit(
                self._run, self._fetches, FETCHES_A_SECOND, seconds, fetch_error_position(FETCHED_TOPIC)
            )
            return produce.result(), fetch.result()

    def _run(self, frames: list[Frames], rate: int, seconds: float, error_position: int) -> Outcome:
        return load.run_load(
            self._port,
            frames,
            in_flight=IN_FLIGHT,
            requests=int(rate * seconds),
            error_position=error_position,
            interval_ns=round(1e9 / rate),
        )


def fetched_batch() -> bytes:
    return batch_for_frame_size(FETCHED_TOPIC, FETCH_SIZE, time.time_ns() // 1_000_000)


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the brokers in turns. Each round cleans logs of its own."""
    compile_packages()
    load.loop_language()  # compiles the load generator if that is not done yet: not from two threads at a time
    kind = KIND.with_fewer_records(QUICK_DIVISOR) if form.is_quick else KIND
    log = write_log(bench.directory / "dirty", kind, time.time_ns() // 1_000_000)
    logs_a_round = QUICK_LOGS_A_ROUND if form.is_quick else LOGS_A_ROUND
    topics = [[f"log-{number}-{each}" for each in range(logs_a_round)] for number in range(1 + form.rounds)]
    servers = {name: bench.new_server(name, extra=CLEANER_SETTINGS) for name in bench.names}
    running: dict[str, RunningBroker] = {}
    runs: dict[str, list[LatencyRun]] = {name: [] for name in servers}
    try:
        for name, server in servers.items():
            prepare_server(server, [(topic, log) for each in topics for topic in each])
            running[name] = RunningBroker(server)
            _fill(running[name])
            ProduceAndFetchLoad(server).run(form.warm_up_s / WARM_UP_DIVISOR)
        for number, each in enumerate(topics):
            for name, server in servers.items():
                run = _round(server, running[name], each, log, form)
                told = (
                    f"produce {run.produce_idle:.2f} ms idle, {run.produce:.2f} ms; fetch {run.fetch_idle:.2f} ms idle"
                )
                print(f"  {name}: {told}, {run.fetch:.2f} ms; cleaned in {run.seconds:.1f} s", flush=True)
                if number:  # the first has warmed the cleaner up
                    runs[name].append(run)
    finally:
        for broker in running.values():
            broker.stop()
        for server in servers.values():
            remove_server(server)
        shutil.rmtree(log.directory)
    return _figures(runs)


def _fill(running: RunningBroker) -> None:
    client = running.connect()
    for topic in (OTHER_TOPIC, PRODUCED_TOPIC, FETCHED_TOPIC):
        client.create_topic(topic)
    frame = produce_frame(FETCHED_TOPIC, fetched_batch())
    for _ in range(FETCHED_BATCHES):
        client.exchange(frame)
    client.close()


def _round(server: Server, running: RunningBroker, topics: list[str], log: DirtyLog, form: RunForm) -> LatencyRun:
    produce_idle, produce, fetch_idle, fetch = (LatencySamples() for _ in range(4))
    loads = ProduceAndFetchLoad(server)
    piece_s = PIECE_QUICK_S if form.is_quick else PIECE_S
    # Pieces of one length on both sides: each begins with new connections, and that is in the figures of both.
    for _ in range(round((IDLE_QUICK_S if form.is_quick else IDLE_S) / piece_s)):
        outcomes = loads.run(piece_s)
        produce_idle.add(outcomes[0])
        fetch_idle.add(outcomes[1])
    client = running.connect()
    make_compacted(client, topics)
    client.close()
    began = time.perf_counter()
    while True:
        outcomes = loads.run(piece_s)
        seconds = time.perf_counter() - began
        if all(cleaned_offset(server, topic) >= log.end_offset for topic in topics):
            break
        assert seconds < CLEANED_S_MAX, f"{server.name} has not cleaned {topics}"
        produce.add(outcomes[0])
        fetch.add(outcomes[1])
    return LatencyRun(produce_idle.p99_ms, produce.p99_ms, fetch_idle.p99_ms, fetch.p99_ms, seconds)


def _figures(runs: dict[str, list[LatencyRun]]) -> list[Figure]:
    def figure(name: str, unit: str, of: Callable[[LatencyRun], float], note: str = "") -> Figure:
        return Figure(name, unit, {broker: [of(run) for run in mine] for broker, mine in runs.items()}, note=note)

    produce, fetch = "produce 200 B while logs are cleaned: p99", "fetch 64 KiB while logs are cleaned: p99"
    rates = f"{PRODUCES_A_SECOND:,} produces and {FETCHES_A_SECOND:,} fetches a second at a time"
    return [
        figure(produce, "ms", lambda run: run.produce, f"{rates}; {KIND.name}"),
        figure(f"{produce}, times that of idle", "x", lambda run: run.produce / run.produce_idle),
        figure("produce 200 B before logs are cleaned: p99", "ms", lambda run: run.produce_idle),
        figure(fetch, "ms", lambda run: run.fetch, f"{rates}; {KIND.name}"),
        figure(f"{fetch}, times that of idle", "x", lambda run: run.fetch / run.fetch_idle),
        figure("fetch 64 KiB before logs are cleaned: p99", "ms", lambda run: run.fetch_idle),
        figure("logs cleaned beside produce and fetch: time", "s", lambda run: run.seconds),
    ]
