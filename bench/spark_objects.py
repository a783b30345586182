"""Spark reads the tiered segments of a topic from an object store, beside what obstore alone downloads of them, and
beside batches that are ready and come from no store.

A broker copies the segments to an S3 server on this machine (versitygw). Then the three take turns.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import obstore

from bench import spark_floor
from bench.cold_read import BUCKET
from bench.figures import OURS, PEER, Figure
from bench.object_server import REGION
from moldau.storage.tiered.layout import ObjectKind
from moldau.storage.tiered.object_options import ObjectStoreOptions
from moldau.storage.tiered.object_storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC: Final = "read-objects"
URL: Final = f"s3://{BUCKET}/bench"
TASKS: Final = 8
FEW_COLUMNS: Final = "key,offset,timestamp"
ALL_COLUMNS: Final = "key,value,topic,partition,offset,timestamp,timestampType"
SEGMENT_SIZE: Final = 64 << 20
SEGMENT_SIZE_QUICK: Final = 16 << 20
COPIED_S_MAX: Final = 300.0
TOPIC_CONFIG: Final = {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.ms": "-1"}


def topic_config(*, is_quick: bool) -> dict[str, str]:
    return {**TOPIC_CONFIG, "segment.bytes": str(SEGMENT_SIZE_QUICK if is_quick else SEGMENT_SIZE)}


def await_copies(endpoint: str, size: int) -> None:
    """Wait until segments of this size (bytes) in all are in the store."""
    deadline = time.monotonic() + COPIED_S_MAX
    while (found := sum(each for _, each in segment_objects(endpoint))) < size:
        assert time.monotonic() < deadline, f"{found} of {size} bytes were copied"
        time.sleep(0.2)


def object_figures(session: SparkSession, endpoint: str, rounds: int, home: Path) -> list[Figure]:
    """Measure reads with eight tasks into `noop`, as a share of obstore's rate: with all columns, and without the
    values. The reads are also compared with ready batches, for which `home` gets files. Without the values all bytes
    are still downloaded and checked, but few of them go from Python to Java.
    """
    options = {
        "path": URL,
        "subscribe": TOPIC,
        "minPartitions": str(TASKS),
        "moldau.tiered.storage.endpoint": endpoint,
        "moldau.tiered.storage.region": REGION,
    }
    source = session.read.format("moldau").options(**options)
    ready = spark_floor.ready_rows(session, options, home / "objects-ready")
    size = sum(each for _, each in segment_objects(endpoint))

    def scan(columns: str | None) -> float:
        """MB/s of these columns; without them of the ready batches."""
        rows = ready if columns is None else source.option("columns", columns).load()
        began = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        return size / (time.perf_counter() - began) / 1e6

    rates: dict[str, list[float]] = {"all columns": [], "without the values": []}
    alone: list[float] = []
    floor: list[float] = []
    for number in range(rounds + 1):
        measured = [scan(ALL_COLUMNS), scan(FEW_COLUMNS)]
        peer, least = asyncio.run(download_mb_per_s(endpoint)), scan(None)
        mine = " and ".join(f"{each:.0f}" for each in measured)
        print(
            f"  spark from an object store: {mine} MB/s, obstore alone {peer:.0f}, ready batches {least:.0f}",
            flush=True,
        )
        if number:
            alone.append(peer)
            floor.append(least)
            for values, rate in zip(rates.values(), measured, strict=True):
                values.append(rate)
    shutil.rmtree(home / "objects-ready")
    note = f"{size >> 20} MiB of segments without a codec, 1 KiB values, {TASKS} tasks; versitygw on the same machine"
    shares = {
        name: [100 * rate / peer for rate, peer in zip(values, alone, strict=True)] for name, values in rates.items()
    }
    whole, few = (f"spark: from an object store, {TASKS} tasks{rest}" for rest in ("", ", without the values"))
    return [
        Figure(f"{whole}: rate", "MB/s", {OURS: rates["all columns"]}, False, note),
        Figure(f"{whole}: of what obstore alone downloads", "%", {OURS: shares["all columns"]}, False),
        Figure(f"{whole}, against ready batches", "MB/s", {OURS: rates["all columns"], PEER: floor}, False),
        Figure(f"{few}: rate", "MB/s", {OURS: rates["without the values"]}, False),
        Figure(f"{few}: of what obstore alone downloads", "%", {OURS: shares["without the values"]}, False),
    ]


def segment_objects(endpoint: str) -> list[tuple[str, int]]:
    """The keys and sizes of the topic's segments."""
    store = open_store(URL, ObjectStoreOptions(endpoint=endpoint, region=REGION))
    return [
        (each["path"], each["size"])
        for page in obstore.list(store)
        for each in page
        if TOPIC in each["path"]
        if each["path"].endswith(ObjectKind.LOG.value)
    ]


async def download_mb_per_s(endpoint: str) -> float:
    """The rate (MB/s) of obstore, with as many objects at a time as Spark has tasks. Each object is consumed in pieces
    as they arrive.
    """
    store = open_store(URL, ObjectStoreOptions(endpoint=endpoint, region=REGION))
    limit = asyncio.Semaphore(TASKS)

    async def one(key: str) -> int:
        async with limit:
            answer = await obstore.get_async(store, key)
            taken = 0
            async for piece in answer.stream(min_chunk_size=1 << 20):
                taken += len(piece)
            return taken

    began = time.perf_counter()
    sizes = await asyncio.gather(*(one(key) for key, _ in segment_objects(endpoint)))
    return sum(sizes) / (time.perf_counter() - began) / 1e6
