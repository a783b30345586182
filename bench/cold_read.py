"""The rates of a consumer that reads a tiered topic from its beginning, and of the copy of that topic, beside the rates
of obstore alone.

The broker, obstore and the raw client take turns in each round, with one S3 server on this machine. obstore alone
downloads the objects that the broker has copied, in the better of two ways, and uploads the files that the broker
copies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import obstore

from bench import load
from bench.client import Client
from bench.figures import OURS, Figure
from bench.frames import Frames, batch_for_frame_size, produce_error_position, produce_frame
from bench.groups import RunForm
from bench.object_server import REGION, ObjectServer, find_program
from bench.processes import cpu_time
from bench.raw_reader import RawReader, ReadResult
from bench.start import compile_packages
from bench.subjects import Bench, RunningBroker, Server, remove_server
from moldau.broker.tiering.block_cache import BLOCK_SIZE, READS_AHEAD_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.storage.tiered.layout import ObjectKind
from moldau.storage.tiered.object_options import ObjectStoreOptions
from moldau.storage.tiered.object_storage import open_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TOPIC: Final = "cold"
BUCKET: Final = "bench"
ALONE: Final = "alone"
SEGMENT_SIZE: Final = 64 << 20
SEGMENTS: Final = 16
SEGMENT_SIZE_QUICK: Final = 16 << 20
SEGMENTS_QUICK: Final = 8
PRODUCE_SIZE: Final = 64 << 10
PRODUCED_IN_FLIGHT: Final = 8
FETCH_SIZES: Final = {"1 MiB": 1 << 20, "8 MiB": 8 << 20}
"""The partition sizes of the fetches, by name: the default of clients, and the size that a bulk reader requests."""
TASK_INTERVAL_MS: Final = 500
POLL_S: Final = 0.02
COPIED_S_MAX: Final = 600.0
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
TOPIC_RESOURCE: Final = 2
SET: Final = 0


class ColdReadRound(NamedTuple):
    """The result of one round: rates in MB/s, and the broker's CPU time in seconds for each GB."""

    reads: dict[str, float]
    """The read rates by fetch size."""
    read_alone: float
    copied: float
    copied_alone: float
    read_cpu: dict[str, float]
    copy_cpu: float


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure this broker alone, because Apache Kafka has no client of an object store. Raises `Missing` without
    versitygw.
    """
    find_program()
    compile_packages()
    rounds: list[ColdReadRound] = []
    for _ in range(form.rounds):
        home = bench.directory / f"objects-{len(rounds)}"
        home.mkdir(parents=True)
        with ObjectServer(home, bench.free_pair()) as objects:
            objects.make_bucket(BUCKET)
            server = bench.new_server(OURS, extra=broker_settings(objects.endpoint))
            server.format()
            rounds.append(_round(server, objects.endpoint, is_quick=form.is_quick))
        remove_server(server)
        one = rounds[-1]
        reads = ", ".join(f"{rate:.0f} in fetches of {name}" for name, rate in one.reads.items())
        print(f"  cold read: {reads}; obstore alone {one.read_alone:.0f} MB/s", flush=True)
        print(f"  copy: {one.copied:.0f}; obstore alone {one.copied_alone:.0f} MB/s", flush=True)
    return _figures(rounds, is_quick=form.is_quick)


def broker_settings(endpoint: str) -> tuple[str, ...]:
    return (
        "remote.log.storage.system.enable=true",
        f"moldau.tiered.storage=s3://{BUCKET}/bench",
        f"moldau.tiered.storage.endpoint={endpoint}",
        f"moldau.tiered.storage.region={REGION}",
        "rlmm.config.remote.log.metadata.topic.num.partitions=1",
        "rlmm.config.remote.log.metadata.topic.replication.factor=1",
        f"remote.log.manager.task.interval.ms={TASK_INTERVAL_MS}",
        "log.retention.check.interval.ms=500",
        "log.initial.task.delay.ms=500",
    )


def _round(server: Server, endpoint: str, *, is_quick: bool) -> ColdReadRound:
    segment_size = SEGMENT_SIZE_QUICK if is_quick else SEGMENT_SIZE
    segments = SEGMENTS_QUICK if is_quick else SEGMENTS
    options = ObjectStoreOptions(endpoint=endpoint, region=REGION)
    with RunningBroker(server) as running:
        client = running.connect()
        _create(client, segment_size)
        _write(server, segment_size * segments)
        files = sorted((server.data / f"{TOPIC}-0").glob("*.log"))[:-1]
        copied_alone = asyncio.run(_uploaded(options, files))
        cpu_before = cpu_time(running.pid)
        copied, size = _copy(client, files)
        copy_cpu = cpu_time(running.pid).since(cpu_before).total_s / size * 1e9
        end_offset = _wait_until_local_is_gone(client, files)
        reads, read_cpu = {}, {}
        for name, fetch_size in FETCH_SIZES.items():
            cpu_before = cpu_time(running.pid)
            taken = _read(server, fetch_size, end_offset)
            reads[name] = taken.size / taken.seconds / 1e6
            read_cpu[name] = cpu_time(running.pid).since(cpu_before).total_s / taken.size * 1e9
        read_alone = max(asyncio.run(_downloaded(options, way)) for way in (_whole_objects, _ranges))
        return ColdReadRound(reads, read_alone, copied, copied_alone, read_cpu, copy_cpu)


def _figures(rounds: Sequence[ColdReadRound], *, is_quick: bool) -> list[Figure]:
    size = (SEGMENTS_QUICK * SEGMENT_SIZE_QUICK if is_quick else SEGMENTS * SEGMENT_SIZE) >> 20
    note = f"{size} MiB in batches of 64 KiB, one reader, one S3 server (versitygw) on the same machine"
    figures = []

    def figure(
        name: str, unit: str, of: Callable[[ColdReadRound], float], note: str = "", *, less_is_better: bool
    ) -> None:
        figures.append(Figure(name, unit, {OURS: [of(one) for one in rounds]}, less_is_better, note=note))

    for name in FETCH_SIZES:
        subject = f"cold sequential read, fetches of {name}"
        rates = [one.reads[name] for one in rounds]
        shares = [100 * one.reads[name] / one.read_alone for one in rounds]
        cpu = [one.read_cpu[name] for one in rounds]
        figures += [
            Figure(f"{subject}: rate", "MB/s", {OURS: rates}, less_is_better=False, note=note),
            Figure(f"{subject}: of what obstore alone downloads", "%", {OURS: shares}, less_is_better=False),
            Figure(f"{subject}: CPU of the broker", "s/GB", {OURS: cpu}),
        ]
    figure("obstore alone: download", "MB/s", lambda one: one.read_alone, less_is_better=False)
    figure("copy to remote storage: rate", "MB/s", lambda one: one.copied, note, less_is_better=False)
    figure(
        "copy to remote storage: of what obstore alone uploads",
        "%",
        lambda one: 100 * one.copied / one.copied_alone,
        less_is_better=False,
    )
    figure("copy to remote storage: CPU of the broker", "s/GB", lambda one: one.copy_cpu, less_is_better=True)
    figure("obstore alone: upload", "MB/s", lambda one: one.copied_alone, less_is_better=False)
    return figures


# The broker


def _create(client: Client, segment_size: int) -> None:
    """Create a tiered topic whose segments are not copied yet."""
    configs = {
        "remote.storage.enable": "true",
        "remote.log.copy.disable": "true",
        "segment.bytes": str(segment_size),
        "retention.ms": "-1",
        "file.delete.delay.ms": "0",
    }
    topic = CreatableTopic(
        name=TOPIC,
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse, 5).topics[0]
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    client.produce_with_retries(TOPIC)


def _write(server: Server, size: int) -> None:
    """Produce at least `size` bytes, and then more, so that the last segment is rolled."""
    batch = batch_for_frame_size(TOPIC, PRODUCE_SIZE, time.time_ns() // 1_000_000)
    frames = [Frames(produce_frame(TOPIC, batch), PRODUCED_IN_FLIGHT)]
    requests = size // len(batch) + size // len(batch) // 20
    error_position = produce_error_position(TOPIC)
    load.run_load(server.port, frames, in_flight=PRODUCED_IN_FLIGHT, requests=requests, error_position=error_position)


def _copy(client: Client, files: Sequence[Path]) -> tuple[float, int]:
    """Wait until all segments are copied. Returns the rate (MB/s) from the first copied segment to the last, and the
    size of all (bytes).
    """
    sizes = [path.stat().st_size for path in files]
    changes = {"remote.log.copy.disable": "false", "local.retention.bytes": "1"}
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=TOPIC,
        configs=[AlterableConfig(name=name, config_operation=SET, value=value) for name, value in changes.items()],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = client.ask(request, IncrementalAlterConfigsResponse, 1).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    ends = [int(path.stem) for path in files[1:]]
    began, first, last = time.perf_counter(), 0.0, 0.0
    copied_first = 0
    while True:
        assert time.perf_counter() < began + COPIED_S_MAX, "not all segments were copied"
        tiered_end = _offset(client, LATEST_TIERED) + 1
        count = sum(1 for end in ends if end <= tiered_end)
        if count and not first:
            first, copied_first = time.perf_counter(), count
        if tiered_end > ends[-1]:
            last = time.perf_counter()
            return sum(sizes[copied_first:]) / (last - first) / 1e6, sum(sizes)
        time.sleep(POLL_S)


def _wait_until_local_is_gone(client: Client, files: Sequence[Path]) -> int:
    """Wait until the local segments are deleted. Returns the start offset of the local log."""
    deadline = time.monotonic() + COPIED_S_MAX
    while any(path.exists() for path in files):
        assert time.monotonic() < deadline, "local segments stay"
        time.sleep(POLL_S)
    return _offset(client, EARLIEST_LOCAL)


def _read(server: Server, fetch_size: int, end_offset: int) -> ReadResult:
    reader = RawReader(server.port, TOPIC, fetch_size)
    try:
        return reader.read(0, end_offset)
    finally:
        reader.close()


def _offset(client: Client, timestamp: int) -> int:
    wish = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=TOPIC, partitions=[wish])]
    )
    answer = client.ask(request, ListOffsetsResponse, 9).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
    offset: int = answer.offset
    return offset


# obstore alone


async def _uploaded(options: ObjectStoreOptions, files: Sequence[Path]) -> float:
    """Upload files one after the other, in parts of the broker's size. Returns the rate (MB/s)."""
    store = open_store(f"s3://{BUCKET}/{ALONE}", options)
    began, size = time.perf_counter(), 0
    for path in files:
        await obstore.put_async(
            store, path.name, path, chunk_size=options.part_size, max_concurrency=options.parts_at_once
        )
        size += path.stat().st_size
    return size / (time.perf_counter() - began) / 1e6


async def _downloaded(options: ObjectStoreOptions, way: Callable[[ObjectStore, str, int], Awaitable[int]]) -> float:
    """Download the objects of the topic one after the other. Returns the rate (MB/s)."""
    store = open_store(f"s3://{BUCKET}/bench", options)
    found = [
        (each["path"], each["size"])
        async for page in obstore.list(store)
        for each in page
        if each["path"].endswith(ObjectKind.LOG.value)
    ]
    began, size = time.perf_counter(), 0
    for key, its_size in sorted(found):
        size += await way(store, key, its_size)
    return size / (time.perf_counter() - began) / 1e6


async def _whole_objects(store: ObjectStore, key: str, size: int) -> int:
    """Download an object with one request, and consume it in pieces as they arrive."""
    taken = 0
    answer = await obstore.get_async(store, key)
    async for piece in answer.stream(min_chunk_size=1 << 20):
        taken += len(piece)
    return taken


async def _ranges(store: ObjectStore, key: str, size: int) -> int:
    """Download an object in ranges, with as many requests at a time as the broker's read-ahead."""
    limit = asyncio.Semaphore(READS_AHEAD_MAX)

    async def one(start: int) -> int:
        async with limit:
            return len(await obstore.get_range_async(store, key, start=start, length=min(BLOCK_SIZE, size - start)))

    return sum(await asyncio.gather(*(one(start) for start in range(0, size, BLOCK_SIZE))))
