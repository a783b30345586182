"""The check of `moldau erase --verify --storage URL`. It reads every .log object of a partition in remote storage, even
if the metadata of the cluster no longer name it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.daily.failures import Failure
from moldau.broker.cli.invocation import reason_of
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.log_config import INT64_MAX
from moldau.storage.tiered.layout import ObjectKind, parse_key, partition_prefix
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.object_options import ObjectStoreOptions
from moldau.storage.tiered.opening import check_cluster, open_storage
from moldau.storage.tiered.port import ObjectNotFound, RemoteStorage, RemoteStorageError, list_all
from moldau.storage.tiered.remote_lookup import batches_from

if TYPE_CHECKING:
    from argparse import Namespace

CHUNK_SIZE: Final = 4 << 20


def counts_in(
    given: Namespace, cluster_id: str, partition: RemotePartition, is_left: Callable[[Record], bool]
) -> tuple[int, int]:
    """Count the records in the remote objects of a partition. Returns the number of all records, and of those for which
    `is_left` is true. Raises `Failure`.
    """

    async def count() -> tuple[int, int]:
        options = ObjectStoreOptions(endpoint=given.endpoint, region=given.region)
        storage = open_storage(given.storage, random.Random(), asyncio.sleep, options=options)
        read = left = 0
        try:
            await check_cluster(storage, cluster_id)
            async for record in _records(storage, partition):
                read += 1
                left += is_left(record)
        finally:
            await storage.close()
        return read, left

    try:
        return asyncio.run(count())
    except (RemoteStorageError, MalformedMessage, OSError) as problem:
        raise Failure(f"{given.storage} cannot be read: {reason_of(problem)}") from None


async def _records(storage: RemoteStorage, partition: RemotePartition) -> AsyncIterator[Record]:
    async for entry in list_all(storage, partition_prefix(partition)):
        named = parse_key(entry.key)
        if named is None or named.kind is not ObjectKind.LOG:
            continue
        # Without a manifest, which an object that is being deleted does not have any more.
        start = (EpochStart(0, named.start_offset),)
        segment = RemoteSegment(named.segment_id, named.start_offset, INT64_MAX, -1, -1, -1, start, entry.size)
        try:
            async for batch in batches_from(storage, partition, segment, 0, chunk_size=CHUNK_SIZE):
                if not batch.header.is_control:
                    for record in records_of(batch.data, 0, batch.header):
                        yield record
        except ObjectNotFound:
            continue  # It was deleted after the listing.
