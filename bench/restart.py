"""The start after kill -9 with many partitions of small transactions, of which none was flushed: the same files in both
brokers.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Final, NamedTuple

from bench.client import connect_with_retries
from bench.figures import Figure
from bench.groups import RunForm
from bench.processes import cpu_time
from bench.recovery import OTHER_TOPIC, RECOVERY_S_MAX, SEGMENT_NAME, TOPIC, create_partitions
from bench.start import compile_packages
from bench.subjects import Bench, RunningBroker, Server, remove_server
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_builder import Record, build_batch

EPOCHS: Final = 32_000
PRODUCERS: Final = 3
"""The number of producers of each partition, which take turns."""
SEGMENT_FILES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


class RestartCase(NamedTuple):
    """The number of partitions, and the size (bytes) of all of them together."""

    partitions: int
    size: int

    @property
    def name(self) -> str:
        partitions, size = f"{self.partitions:,} partitions", f"{self.size >> 20} MiB of transactions"
        return f"start after kill -9 with {partitions}, {size} not flushed"


CASES: Final = (RestartCase(285, 204 << 20), RestartCase(1000, 204 << 20))


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure each case on all brokers in turns."""
    compile_packages()
    cases = [case for case in CASES if form.case in case.name]
    return [figure for case in cases for figure in _measure_case(bench, case, form.rounds)]


def _measure_case(bench: Bench, case: RestartCase, rounds: int) -> list[Figure]:
    source = bench.directory / f"transactions-{case.partitions}"
    source.mkdir()
    for number in range(case.partitions):
        write_transactions(source / f"{number}.log", case.size // case.partitions, number)
    servers = {name: _prepared(bench.new_server(name), case) for name in bench.names}
    times: dict[str, list[float]] = {}
    cpu_times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, server in servers.items():
            _put_in_place(Path(server.data), source, case.partitions)
            with RunningBroker(server) as running:
                connect_with_retries(server.port, RECOVERY_S_MAX).produce_with_retries(OTHER_TOPIC)
                times.setdefault(name, []).append(time.perf_counter() - running.started)
                cpu_times.setdefault(name, []).append(cpu_time(running.pid).total_s)
                running.kill()
            print(f"  {case.name}: {name}: {times[name][-1]:.2f} s, CPU {cpu_times[name][-1]:.2f} s", flush=True)
    for server in servers.values():
        remove_server(server)
    shutil.rmtree(source)
    note = "exec to first acknowledged produce, files in the page cache"
    return [Figure(case.name, "s", times, note=note), Figure(f"{case.name}: user + system CPU", "s", cpu_times)]


def write_transactions(path: Path, size: int, number: int) -> None:
    """Write a segment of transactions of one batch each, by a few producers in turns. One transaction in ten is
    aborted.
    """
    now_ms = time.time_ns() // 1_000_000
    record = Record(value=bytes(99), timestamp=now_ms)
    with path.open("wb") as out:
        offset = turn = 0
        while out.tell() < size:
            producer, epoch = number * PRODUCERS + turn % PRODUCERS, turn // PRODUCERS % EPOCHS
            data = build_batch(
                [record],
                base_offset=offset,
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=0,
                is_transactional=True,
                partition_leader_epoch=0,
            )
            marker = end_transaction_marker(
                commits=turn % 10 > 0,
                producer_id=producer,
                producer_epoch=epoch + 1,
                coordinator_epoch=0,
                timestamp=now_ms,
                base_offset=offset + 1,
                partition_leader_epoch=0,
            )
            out.write(data + marker)
            offset += 2
            turn += 1


def _prepared(server: Server, case: RestartCase) -> Server:
    """Make a broker that was killed, with empty partitions."""
    server.format()
    with RunningBroker(server) as running:
        client = running.connect()
        client.create_topic(OTHER_TOPIC)
        create_partitions(client, case.partitions)
        homes = [Path(server.data) / f"{TOPIC}-{number}" for number in range(case.partitions)]
        while not all(home.exists() for home in homes):
            time.sleep(0.5)
        time.sleep(2.0)
        running.kill()
    return server


def _put_in_place(data: Path, source: Path, partitions: int) -> None:
    """Replace the files of each partition by these segments, as if they had just been written."""
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        (data / name).unlink(missing_ok=True)
    for number in range(partitions):
        home = data / f"{TOPIC}-{number}"
        for file in home.iterdir():
            if file.suffix in SEGMENT_FILES:
                file.unlink()
        shutil.copyfile(source / f"{number}.log", home / SEGMENT_NAME)
