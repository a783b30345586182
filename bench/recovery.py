"""Recovery of full active segments after kill -9, from the page cache: the same files in both brokers."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple

from bench.client import Client, connect_with_retries
from bench.figures import Figure
from bench.frames import ProducerIdentity, batch_of
from bench.groups import RunForm
from bench.processes import cpu_time
from bench.start import compile_packages
from bench.subjects import Bench, RunningBroker, Server, remove_server
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.primitives import crc32c
from moldau.protocol.record_batch import ATTRIBUTES_POSITION, CRC_POSITION

TOPIC: Final = "recovered"
OTHER_TOPIC: Final = "other"
SEGMENT_SIZE: Final = 1 << 30
SEGMENT_NAME: Final = f"{0:020}.log"
BLOCK_SIZE: Final = 1 << 20
RECOVERY_S_MAX: Final = 600.0
SEQUENCE_POSITION: Final = 53


class SegmentKind(NamedTuple):
    """The contents of a segment."""

    name: str
    value_sizes: list[int]
    producer: ProducerIdentity | None = None


KINDS: Final = (
    SegmentKind("16 KiB batches", [1007] * 16),
    SegmentKind("169-byte batches", [99]),
    SegmentKind("169-byte batches of an idempotent producer", [99], ProducerIdentity(1, 0)),
)


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure each kind on all brokers in turns. Nothing is ever flushed, so all batches are checked."""
    compile_packages()
    figures: list[Figure] = []
    words, segments = ("two", 2) if form.is_quick else ("ten", 10)
    for kind in KINDS:
        times, cpu_times = _measure_kind(bench, kind, form.rounds, segments)
        name = f"recovery of {words} active 1 GiB segments, {kind.name}"
        figures.append(Figure(name, "s", times, note="exec to first acknowledged produce, files in the page cache"))
        figures.append(Figure(f"{name}: user + system CPU", "s", cpu_times))
    return figures


def _measure_kind(
    bench: Bench, kind: SegmentKind, rounds: int, segments: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    sources = [bench.directory / f"segment-{index}" for index in range(segments)]
    for source in sources:
        write_segment(source, kind)
    servers = {name: _prepared(bench.new_server(name), sources) for name in bench.names}
    times: dict[str, list[float]] = {}
    cpu_times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, server in servers.items():
            _read_all(sources)
            with RunningBroker(server) as running:
                connect_with_retries(server.port, RECOVERY_S_MAX).produce_with_retries(OTHER_TOPIC)
                times.setdefault(name, []).append(time.perf_counter() - running.started)
                cpu_times.setdefault(name, []).append(cpu_time(running.pid).total_s)
                running.kill()
            took = f"{times[name][-1]:.2f} s, CPU {cpu_times[name][-1]:.2f} s"
            print(f"  recovery {name}: {segments} segments of {kind.name}: {took}", flush=True)
    for server in servers.values():
        remove_server(server)
    for source in sources:
        source.unlink()
    return times, cpu_times


def write_segment(path: Path, kind: SegmentKind) -> None:
    """Write a segment of a gigabyte that repeats one batch with consecutive offsets and sequences."""
    batch = batch_of(kind.value_sizes, time.time_ns() // 1_000_000, kind.producer)
    count = max(1, BLOCK_SIZE // len(batch))
    block = memoryview(bytearray(batch * count))
    offset = 0
    with path.open("wb") as out:
        while out.tell() + len(block) <= SEGMENT_SIZE:
            for start in range(0, len(block), len(batch)):
                struct.pack_into(">q", block, start, offset)
                if kind.producer is not None:
                    struct.pack_into(">i", block, start + SEQUENCE_POSITION, offset)
                    crc = crc32c(block[start + ATTRIBUTES_POSITION : start + len(batch)], 0)
                    struct.pack_into(">I", block, start + CRC_POSITION, crc)
                offset += len(kind.value_sizes)
            out.write(block)
        out.flush()
        os.fsync(out.fileno())


def _prepared(server: Server, sources: list[Path]) -> Server:
    """Make a broker that was killed with these segments in its partitions. The files are the same in every broker."""
    server.format()
    with RunningBroker(server) as running:
        client = running.connect()
        client.create_topic(OTHER_TOPIC)
        create_partitions(client, len(sources))
        time.sleep(1.0)
        running.kill()
    for index, source in enumerate(sources):
        target = Path(server.data) / f"{TOPIC}-{index}" / SEGMENT_NAME
        target.unlink()
        os.link(source, target)
    return server


def create_partitions(client: Client, partitions: int) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 5).topics[0]
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def _read_all(paths: list[Path]) -> None:
    """Bring the files into the page cache."""
    buffer = bytearray(1 << 20)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
