"""Lookups in remote segments find what the same lookups in the local log find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.log.log import Log
from moldau.storage.log.reading import aborted_transactions as local_aborted
from moldau.storage.log.reading import offset_for_timestamp
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.storage.tiered.index_cache import RemoteIndexCache
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from moldau.storage.tiered.port import CorruptObject, RemoteStorage
from moldau.storage.tiered.remote_lookup import (
    aborted_transactions,
    batches_from,
    find_timestamp,
    log_key,
    read_batches_from,
)
from moldau.testing.simulation.storage import SimulatedBucket
from tests.support.segments import EPOCH
from tests.unit.storage.tiered.remote_partition import CLUSTER, PARTITION, copied, index_cache, written_log
from tests.unit.storage.tiered.storages import run, simulated


@pytest.mark.parametrize("size_max", [1, 300, 5_000, 1 << 20])
def test_a_sequential_reader_gets_every_byte_once(tmp_path: Path, size_max: int) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        _, segments = await copied(written_log(tmp_path), storage)
        for segment in segments:
            read, position, offset = b"", 0, segment.start_offset
            while (
                part := await read_batches_from(storage, PARTITION, segment, position, offset, size_max)
            ) is not None:
                assert part.position == position
                assert len(part.data) <= size_max or len(list(iterate_batches(part.data))) == 1
                read += part.data
                position, offset = part.end_position, part.next_offset
            assert read == bucket.contents()[log_key(PARTITION, segment)]
            assert offset == segment.last_offset + 1

    run(story())


def test_a_read_begins_with_the_batch_of_its_offset_and_takes_one_request(tmp_path: Path) -> None:
    async def story() -> None:
        storage, _ = simulated()
        _, segments = await copied(written_log(tmp_path), storage)
        cache = index_cache(tmp_path)
        segment = segments[1]
        indexes = await cache.open_indexes(storage, CLUSTER, PARTITION, segment)
        for offset in range(segment.start_offset, segment.last_offset + 1):
            calls = storage.call_count
            position = indexes.offset_index.position_at_or_before(offset)
            part = await read_batches_from(storage, PARTITION, segment, position, offset, 8_000)
            assert part is not None and storage.call_count == calls + 1
            _, first = next(iterate_batches(part.data))
            assert first.base_offset <= offset <= first.last_offset

    run(story())


def test_a_read_past_the_last_batch_finds_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        storage, _ = simulated()
        _, segments = await copied(written_log(tmp_path), storage)
        segment = segments[0]
        assert await read_batches_from(storage, PARTITION, segment, segment.size, segment.last_offset, 100) is None
        assert await read_batches_from(storage, PARTITION, segment, 0, segment.last_offset + 1, 100) is None
        assert await read_batches_from(storage, PARTITION, replace(segment, size=0), 0, 0, 100) is None

    run(story())


@pytest.mark.parametrize("position", [0, 8, 16, 20, 30, 100, 5_000])
def test_damage_is_never_served(tmp_path: Path, position: int) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        _, segments = await copied(written_log(tmp_path), storage)
        segment, key = segments[1], log_key(PARTITION, segments[1])
        bucket.damage(key, position)
        with pytest.raises(CorruptObject, match=key):
            async for _ in batches_from(storage, PARTITION, segment, 0, chunk_size=700):
                pass
        bucket.damage(key, position)
        await storage.put(key, bucket.contents()[key][:-10])
        with pytest.raises(CorruptObject, match=key):
            async for _ in batches_from(storage, PARTITION, segment, 0):
                pass

    run(story())


async def remote_timestamp(
    storage: RemoteStorage, cache: RemoteIndexCache, segments: list[RemoteSegment], timestamp: int
) -> object:
    for segment in segments:
        indexes = await cache.open_indexes(storage, CLUSTER, PARTITION, segment)
        found = await find_timestamp(storage, PARTITION, segment, indexes, timestamp, 0, 1 << 20)
        await cache.release_indexes(indexes)
        if found is not None:
            return found
    return None


def test_timestamps_are_found_as_in_the_local_log(tmp_path: Path) -> None:
    async def story() -> None:
        storage, _ = simulated()
        batches = [
            build_batch([Record(b"k", b"v" * 300, 1000 * number - number % 3 * 2500)], base_offset=number)
            for number in range(200)
        ]
        log = written_log(tmp_path, batches)
        _, segments = await copied(log, storage)
        cache = index_cache(tmp_path)
        for timestamp in range(0, 150_000, 370):
            expected = offset_for_timestamp(log, timestamp)
            if expected is not None and expected.offset <= segments[-1].last_offset:
                assert await remote_timestamp(storage, cache, segments, timestamp) == expected, timestamp

    run(story())


def transactional_batches() -> list[bytes]:
    """Four producers, each with a transaction of some batches; every second one aborts. They overlap."""
    batches: list[bytes] = []
    for offset in range(240):
        producer, step = offset % 4, offset // 4 % 10
        if step == 9:
            commits = (offset // 40 + producer) % 2 == 0
            batches.append(
                end_transaction_marker(
                    commits=commits,
                    producer_id=producer,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp=1,
                    base_offset=offset,
                    partition_leader_epoch=EPOCH,
                )
            )
            continue
        sequence = offset // 40 * 9 + step
        batches.append(
            build_batch(
                [Record(b"k", b"v" * 500, 1)],
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
                partition_leader_epoch=EPOCH,
            )
        )
    return batches


def test_aborted_transactions_are_those_of_the_local_log(tmp_path: Path) -> None:
    async def story() -> None:
        storage, _ = simulated()
        log = written_log(tmp_path, transactional_batches())
        remote, segments = await copied(log, storage)
        assert any(segment.has_transaction_index for segment in segments)
        cache = index_cache(tmp_path)
        for first in range(0, segments[-1].last_offset, 3):
            end = first + 7
            found, is_complete = await remote_aborted(storage, cache, remote, first, end)
            expected = local_aborted(log, first, end)
            assert found == expected[: len(found)]
            assert is_complete <= (found == expected)
            assert all(each.last_offset > segments[-1].last_offset for each in expected[len(found) :])

    run(story())


async def remote_aborted(
    storage: RemoteStorage, cache: RemoteIndexCache, remote: RemoteLog, first: int, end: int
) -> tuple[list[AbortedTransaction], bool]:
    async def collect(segment: RemoteSegment) -> tuple[list[AbortedTransaction], bool]:
        indexes = await cache.open_indexes(storage, CLUSTER, PARTITION, segment)
        try:
            return indexes.transaction_index.overlapping_transactions(first, end)
        finally:
            await cache.release_indexes(indexes)

    return await aborted_transactions(remote, EPOCH, first, collect)


def test_the_story_of_the_log_has_its_segments(tmp_path: Path) -> None:
    log: Log = written_log(tmp_path, transactional_batches())
    assert len(log.segments) > 4
