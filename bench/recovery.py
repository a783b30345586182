"""Recovery of full active segments after kill -9, from the page cache: the same files in both brokers."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple

from bench.client import Client, connect_when_possible
from bench.figures import Figure
from bench.frames import Producer, batch_of
from bench.groups import Form
from bench.processes import cpu_time
from bench.start import compile_packages
from bench.subjects import Bench, Running, Server, remove
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


class Kind(NamedTuple):
    """What a segment is full of."""

    name: str
    value_sizes: list[int]
    producer: Producer | None = None


KINDS: Final = (
    Kind("16 KiB batches", [1007] * 16),
    Kind("169-byte batches", [99]),
    Kind("169-byte batches of an idempotent producer", [99], Producer(1, 0)),
)


def measure(bench: Bench, form: Form) -> list[Figure]:
    """Each kind on all brokers in turns; nothing is ever flushed, so everything is checked."""
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
    bench: Bench, kind: Kind, rounds: int, segments: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    sources = [bench.directory / f"segment-{index}" for index in range(segments)]
    for source in sources:
        write_segment(source, kind)
    servers = {name: _prepared(bench.new(name), sources) for name in bench.names}
    times: dict[str, list[float]] = {}
    cpu_times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, server in servers.items():
            _read_all(sources)
            with Running(server) as running:
                connect_when_possible(server.port, RECOVERY_S_MAX).produce_when_possible(OTHER_TOPIC)
                times.setdefault(name, []).append(time.perf_counter() - running.started)
                cpu_times.setdefault(name, []).append(cpu_time(running.pid).total_s)
                running.kill()
            took = f"{times[name][-1]:.2f} s, CPU {cpu_times[name][-1]:.2f} s"
            print(f"  recovery {name}: {segments} segments of {kind.name}: {took}", flush=True)
    for server in servers.values():
        remove(server)
    for source in sources:
        source.unlink()
    return times, cpu_times


def write_segment(path: Path, kind: Kind) -> None:
    """A gigabyte of one batch over and over, with the offsets, and the sequences, of a row."""
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
    """A broker killed with these segments in its partitions: by name the same files in every broker."""
    server.format()
    with Running(server) as running:
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
