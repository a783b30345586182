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
    """Until so many bytes of segments are in the store."""
    deadline = time.monotonic() + COPIED_S_MAX
    while (found := sum(each for _, each in objects(endpoint))) < size:
        assert time.monotonic() < deadline, f"{found} of {size} bytes were copied"
        time.sleep(0.2)


def figures(session: SparkSession, endpoint: str, rounds: int, home: Path) -> list[Figure]:
    """Eight tasks, to noop, in shares of the rate of obstore alone: all columns, and columns without the values; and
    against ready batches, for which `home` gets files.

    Without the values all bytes are still downloaded and checked, but few of them go from Python to Java.
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
    size = sum(each for _, each in objects(endpoint))

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
        peer, least = asyncio.run(downloaded(endpoint)), scan(None)
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


def objects(endpoint: str) -> list[tuple[str, int]]:
    """The segments of the topic: keys and sizes."""
    store = open_store(URL, ObjectStoreOptions(endpoint=endpoint, region=REGION))
    return [
        (each["path"], each["size"])
        for page in obstore.list(store)
        for each in page
        if TOPIC in each["path"]
        if each["path"].endswith(ObjectKind.LOG.value)
    ]


async def downloaded(endpoint: str) -> float:
    """MB/s of obstore, with as many objects at once as Spark has tasks; each is taken in pieces as they come."""
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
    sizes = await asyncio.gather(*(one(key) for key, _ in objects(endpoint)))
    return sum(sizes) / (time.perf_counter() - began) / 1e6
