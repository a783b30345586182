"""Copies of the sealed segments of a partition in a tiered storage, as a broker leaves them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.checkpoints.text_checkpoint import format_checkpoint
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.producers.producer_snapshot import encode_snapshot
from moldau.storage.producers.producer_state import ProducerStates
from moldau.storage.segment.segment_listing import ListedSegment, largest_timestamp, list_segments
from moldau.storage.tiered.directory_storage import DirectoryStorage
from moldau.storage.tiered.layout import CLUSTER_MANIFEST_KEY, ObjectKind
from moldau.storage.tiered.manifest import encode_cluster_manifest
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import Content, RemoteStorage
from moldau.storage.tiered.segment_copy import put_segment
from tests.support.segments import EPOCH

CLUSTER = "cluster-of-the-test"
PARTITION = RemotePartition("t", bytes(range(16)), 0)


def tiered_directory(root: Path, log_directory: Path) -> list[ListedSegment]:
    """Copy the sealed segments of partition 0 of topic t into a directory; these segments."""
    root.mkdir(exist_ok=True)
    return copy_sealed(DirectoryStorage(str(root), Random(1)), log_directory)


def copy_sealed(storage: RemoteStorage, log_directory: Path) -> list[ListedSegment]:
    sealed = list_segments(LocalFiles(), f"{log_directory}/t-0")[:-1]
    asyncio.run(_copy(storage, sealed))
    return sealed


async def _copy(storage: RemoteStorage, sealed: Sequence[ListedSegment]) -> None:
    await storage.put(CLUSTER_MANIFEST_KEY, encode_cluster_manifest(CLUSTER))
    for number, segment in enumerate(sealed):
        await copy_segment(storage, segment, segment_id=bytes([*bytes(15), number + 1]))


async def copy_segment(
    storage: RemoteStorage,
    segment: ListedSegment,
    *,
    segment_id: bytes,
    epoch: int = EPOCH,
    ancestors: tuple[bytes, ...] = (),
) -> None:
    """One sealed segment, in all its objects."""
    fs = LocalFiles()
    assert segment.next_base_offset is not None
    snapshot = f"{segment.directory}/{segment.next_base_offset:020}.snapshot"
    timestamp = largest_timestamp(fs, segment)
    has_transactions = fs.exists(segment.path(".txnindex"))
    contents: dict[ObjectKind, Content] = {
        ObjectKind.LOG: fs.read(segment.path(".log")),
        ObjectKind.OFFSET_INDEX: fs.read(segment.path(".index")),
        ObjectKind.TIME_INDEX: fs.read(segment.path(".timeindex")),
        ObjectKind.PRODUCER_SNAPSHOT: fs.read(snapshot) if fs.exists(snapshot) else encode_snapshot(ProducerStates()),
        ObjectKind.LEADER_EPOCHS: format_checkpoint([f"{epoch} 0"]),
    }
    if has_transactions:
        contents[ObjectKind.TRANSACTION_INDEX] = fs.read(segment.path(".txnindex"))
    remote = RemoteSegment(
        segment_id,
        segment.base_offset,
        segment.next_base_offset - 1,
        1,
        timestamp if timestamp is not None else 1 << 60,
        0,
        (EpochStart(epoch, segment.base_offset),),
        segment.size,
        has_transaction_index=has_transactions,
    )
    await put_segment(storage, CLUSTER, PARTITION, remote, contents, ancestors=ancestors)
