"""A partition whose segments were written by the log and copied to simulated storage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_batch import CONTROL_BIT
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.checkpoints.text_checkpoint import format_checkpoint
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.storage.producers.producer_snapshot import encode_snapshot
from moldau.storage.producers.producer_state import ProducerStates, read_transaction_marker
from moldau.storage.tiered.index_cache import RemoteIndexCache
from moldau.storage.tiered.layout import ObjectKind
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment, SegmentState, SegmentUpdate
from moldau.storage.tiered.port import Content, RemoteStorage
from moldau.storage.tiered.segment_copy import FileContent, put_segment
from tests.support.segments import EPOCH, mixed_batches

T = TypeVar("T")

CLUSTER = "cluster-of-the-test"
PARTITION = RemotePartition("t", bytes(range(16)), 0)
SMALL = LogConfig(segment_bytes=20_000, index_interval_bytes=1_000)


async def offload(work: Callable[[], T]) -> T:
    return work()


class _NoLock(AbstractAsyncContextManager[object]):
    async def __aexit__(self, *_: object) -> None:
        return None


def index_cache(tmp_path: Path, size_max: int = 1 << 20) -> RemoteIndexCache:
    cache = RemoteIndexCache(LocalFiles(), str(tmp_path), size_max, offload, _NoLock)
    cache.clear()
    return cache


def written_log(tmp_path: Path, batches: list[bytes] | None = None) -> Log:
    log = Log.open(LocalFiles(), f"{tmp_path}/t-0", SMALL, clean_shutdown=True, now_ms=0)
    for batch in mixed_batches(200, 5) if batches is None else batches:
        assert not log.append_as_follower(batch, EPOCH, 0).error
    log.flush(0)
    return log


def transactional_batches(count: int) -> list[bytes]:
    """Batches of transactions of three producers, which overlap, span segments, and are aborted or committed."""
    batches: list[bytes] = []
    sequences, epoch = [0, 0, 0], 0
    for number in range(count):
        producer_id, offset = number % 3, 2 * number
        if number % 7 in (4, 6):
            commits = number % 7 == 4 and number % 2 == 0
            marker = end_transaction_marker(
                commits=commits,
                producer_id=producer_id,
                producer_epoch=epoch,
                coordinator_epoch=0,
                timestamp=number,
                base_offset=offset,
                partition_leader_epoch=EPOCH,
            )
            batches.append(marker)
            continue
        records = [Record(b"k", bytes(700), number), Record(b"l", bytes(700), number)]
        batches.append(
            build_batch(
                records,
                base_offset=offset,
                partition_leader_epoch=EPOCH,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequences[producer_id],
                is_transactional=True,
            )
        )
        sequences[producer_id] += 2
    return batches


async def copied(log: Log, storage: RemoteStorage) -> tuple[RemoteLog, list[RemoteSegment]]:
    """All segments but the last, copied."""
    fs, remote, producers = LocalFiles(), RemoteLog(), ProducerStates()
    for number, (segment, later) in enumerate(zip(log.segments, log.segments[1:], strict=False)):
        segment.load_timestamps()
        for index in (segment.offset_index, segment.time_index):
            index.entries.write_pending()
        file = segment.file()

        async def read(size: int, position: int, file: object = file) -> bytes:
            return file.pread(size, position)  # type: ignore[attr-defined,no-any-return]

        for position, header in segment.headers():
            is_control = bool(header.attributes & CONTROL_BIT)
            marker = read_transaction_marker(file.pread(header.size, position)) if is_control else None
            producers.replay(header, marker)
        has_transactions = fs.exists(segment.path(".txnindex"))
        started = RemoteSegment(
            bytes([*bytes(15), number + 1]),
            segment.base_offset,
            later.base_offset - 1,
            1,
            segment.max_timestamp,
            number,
            (EpochStart(EPOCH, segment.base_offset),),
            segment.size,
            has_transaction_index=has_transactions,
        )
        contents: dict[ObjectKind, Content] = {
            ObjectKind.LOG: FileContent(read, segment.size, 4096),
            ObjectKind.OFFSET_INDEX: fs.read(segment.path(".index")),
            ObjectKind.TIME_INDEX: fs.read(segment.path(".timeindex")),
            ObjectKind.PRODUCER_SNAPSHOT: encode_snapshot(producers),
            ObjectKind.LEADER_EPOCHS: format_checkpoint([f"{EPOCH} 0"]),
        }
        if has_transactions:
            contents[ObjectKind.TRANSACTION_INDEX] = fs.read(segment.path(".txnindex"))
        assert remote.replay(started)
        await put_segment(storage, CLUSTER, PARTITION, started, contents)
        assert remote.replay(SegmentUpdate(started.segment_id, 1, number, SegmentState.COPY_SEGMENT_FINISHED))
    return remote, remote.read_segments()
