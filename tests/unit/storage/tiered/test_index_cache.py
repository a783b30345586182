"""The cache of remote indexes: bounded by bytes, checked against manifests, empty at each start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moldau.storage.files.local_files import LocalFiles
from moldau.storage.tiered.index_cache import CACHE_DIRECTORY, RemoteIndexCache
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from moldau.storage.tiered.port import CorruptObject, ObjectNotFound, WrongCluster
from moldau.testing.simulation.storage import SimulatedBucket
from tests.unit.storage.tiered.remote_partition import (
    CLUSTER,
    PARTITION,
    copied,
    index_cache,
    offload,
    transactional_batches,
    written_log,
)
from tests.unit.storage.tiered.storages import run, simulated


def key_of(segment: RemoteSegment, kind: ObjectKind) -> str:
    return object_key(PARTITION, segment.start_offset, segment.segment_id, kind)


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / CACHE_DIRECTORY).iterdir())


def test_lookups_are_those_of_the_local_segment_and_loads_happen_once(tmp_path: Path) -> None:
    async def story() -> None:
        storage, _ = simulated()
        log = written_log(tmp_path)
        _, segments = await copied(log, storage)
        cache = index_cache(tmp_path)
        for segment, local in zip(segments, log.segments, strict=False):
            indexes = await cache.open_indexes(storage, CLUSTER, PARTITION, segment)
            for offset in range(segment.start_offset, segment.last_offset + 1):
                expected = local.offset_index.position_at_or_before(offset)
                assert indexes.offset_index.position_at_or_before(offset) == expected
            assert indexes.time_index.last_entry() == local.time_index.last_entry()
            await cache.release_indexes(indexes)
        calls = storage.call_count
        await cache.release_indexes(await cache.open_indexes(storage, CLUSTER, PARTITION, segments[0]))
        assert storage.call_count == calls
        assert (cache.hit_count, cache.miss_count) == (1, len(segments))
        assert files(tmp_path)[0] == "0_AAAAAAAAAAAAAAAAAAAAAQ.index"
        cache.close()

    run(story())


def test_what_was_not_used_for_longest_goes_first_and_nothing_in_use(tmp_path: Path) -> None:
    async def story() -> None:
        storage, _ = simulated()
        _, segments = await copied(written_log(tmp_path), storage)
        cache = index_cache(tmp_path, size_max=0)
        held = await cache.open_indexes(storage, CLUSTER, PARTITION, segments[0])
        await cache.release_indexes(await cache.open_indexes(storage, CLUSTER, PARTITION, segments[1]))
        assert len(files(tmp_path)) == 2 and cache.size == held.size
        assert held.offset_index.position_at_or_before(segments[0].last_offset) > 0
        await cache.release_indexes(held)
        assert files(tmp_path) == [] and cache.size == 0
        cache._size_max = 1 << 20
        for segment in segments:
            await cache.release_indexes(await cache.open_indexes(storage, CLUSTER, PARTITION, segment))
        await cache.release_indexes(await cache.open_indexes(storage, CLUSTER, PARTITION, segments[0]))
        cache._size_max = cache.size - 1
        gone = cache._push_out()
        assert gone and all(f"/{segments[1].start_offset}_" in path for path in gone)

    run(story())


def test_two_readers_load_an_entry_once(tmp_path: Path) -> None:
    async def story() -> None:
        storage, _ = simulated()
        storage._sleep = asyncio.sleep
        storage.faults.delay_s = 0.001
        _, segments = await copied(written_log(tmp_path), storage)
        cache = RemoteIndexCache(LocalFiles(), str(tmp_path), 1 << 20, offload, asyncio.Lock)
        cache.clear()
        opened = await asyncio.gather(*(cache.open_indexes(storage, CLUSTER, PARTITION, segments[0]) for _ in range(5)))
        assert cache.miss_count == 1 and opened[0].use_count == 5 and not cache._locks

    run(story())


def test_damage_is_named_and_nothing_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        _, segments = await copied(written_log(tmp_path), storage)
        cache = index_cache(tmp_path)
        bucket.damage(key_of(segments[0], ObjectKind.MANIFEST), 5)
        with pytest.raises(CorruptObject, match=key_of(segments[0], ObjectKind.MANIFEST)):
            await cache.open_indexes(storage, CLUSTER, PARTITION, segments[0])
        await storage.delete([key_of(segments[1], ObjectKind.MANIFEST)])
        with pytest.raises(ObjectNotFound, match=key_of(segments[1], ObjectKind.MANIFEST)):
            await cache.open_indexes(storage, CLUSTER, PARTITION, segments[1])
        with pytest.raises(WrongCluster):
            await cache.open_indexes(storage, "another", PARTITION, segments[2])
        assert files(tmp_path) == [] and cache.size == 0 and not cache._locks

    run(story())


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("kind", [ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX])
def test_an_index_that_is_damaged_in_storage_is_made_from_the_batches_once(
    tmp_path: Path, kind: ObjectKind, is_gone: bool
) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        log = written_log(tmp_path)
        local = log.segments[1]
        _, segments = await copied(log, storage)
        if is_gone:
            await storage.delete([key_of(segments[1], kind)])
        else:
            bucket.damage(key_of(segments[1], kind), 5)
        reports: list[str] = []
        cache = RemoteIndexCache(LocalFiles(), str(tmp_path), 1 << 20, offload, asyncio.Lock, reports.append)
        cache.clear()
        indexes = await cache.open_indexes(storage, CLUSTER, PARTITION, segments[1])
        for position, header in local.headers():
            assert indexes.offset_index.position_at_or_before(header.base_offset) <= position
        assert indexes.offset_index.entries.count > 2
        assert indexes.time_index.last_entry() == local.time_index.last_entry()
        await cache.release_indexes(indexes)
        assert len(reports) == 1 and key_of(segments[1], kind) in reports[0]
        calls = storage.call_count
        await cache.release_indexes(await cache.open_indexes(storage, CLUSTER, PARTITION, segments[1]))
        assert storage.call_count == calls
        cache.close()

    run(story())


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_transaction_index_that_is_damaged_in_storage_is_made_from_the_batches(tmp_path: Path, is_gone: bool) -> None:
    """Also of transactions that began in a segment before, and before others that stay open."""

    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        log = written_log(tmp_path, transactional_batches(150))
        remote, segments = await copied(log, storage)
        wanted = [log.segments[number].transaction_index.entries() for number in range(len(segments))]
        spanning = [
            each
            for segment, found in zip(segments, wanted, strict=True)
            for each in found
            if each.first_offset < segment.start_offset
        ]
        assert len(segments) > 3 and all(wanted) and spanning
        for segment in segments:
            if is_gone:
                await storage.delete([key_of(segment, ObjectKind.TRANSACTION_INDEX)])
            else:
                bucket.damage(key_of(segment, ObjectKind.TRANSACTION_INDEX), 5)
        reports: list[str] = []
        cache = RemoteIndexCache(LocalFiles(), str(tmp_path), 1 << 20, offload, asyncio.Lock, reports.append)
        cache.clear()
        for segment, entries in zip(segments, wanted, strict=True):
            indexes = await cache.open_indexes(storage, CLUSTER, PARTITION, segment, remote)
            assert indexes.transaction_index.entries() == entries
            await cache.release_indexes(indexes)
        assert len(reports) == len(segments)
        assert key_of(segments[0], ObjectKind.TRANSACTION_INDEX) in reports[0]
        cache.close()

    run(story())


@pytest.mark.parametrize("kind", [ObjectKind.PRODUCER_SNAPSHOT, ObjectKind.LOG])
def test_a_transaction_index_is_not_made_from_what_is_damaged_too(tmp_path: Path, kind: ObjectKind) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        remote, segments = await copied(written_log(tmp_path, transactional_batches(150)), storage)
        bucket.damage(key_of(segments[2], ObjectKind.TRANSACTION_INDEX), 5)
        damaged = segments[1] if kind is ObjectKind.PRODUCER_SNAPSHOT else segments[2]
        bucket.damage(key_of(damaged, kind), 90)
        cache = index_cache(tmp_path)
        with pytest.raises(CorruptObject, match=key_of(damaged, kind)):
            await cache.open_indexes(storage, CLUSTER, PARTITION, segments[2], remote)
        with pytest.raises(CorruptObject, match="not known"):
            await cache.open_indexes(storage, CLUSTER, PARTITION, segments[2])
        assert files(tmp_path) == [] and cache.size == 0 and not cache._locks

    run(story())


def test_files_of_the_previous_start_are_removed(tmp_path: Path) -> None:
    (tmp_path / CACHE_DIRECTORY).mkdir()
    (tmp_path / CACHE_DIRECTORY / "0_x.index").write_bytes(b"torn")
    index_cache(tmp_path)
    assert files(tmp_path) == []


@pytest.mark.parametrize(("suffix", "entry_size"), [(".index", 8), (".timeindex", 12)])
def test_an_index_that_was_copied_out_of_order_is_made_from_the_batches_once(
    tmp_path: Path, suffix: str, entry_size: int
) -> None:
    async def story() -> None:
        storage, _ = simulated()
        log = written_log(tmp_path)
        local = log.segments[1]
        last_time = local.time_index.last_entry()
        path = Path(local.path(suffix))
        sound = path.read_bytes()
        path.write_bytes(sound[:entry_size] + b"\x70" + sound[entry_size + 1 :])
        _, segments = await copied(log, storage)
        reports: list[str] = []
        cache = RemoteIndexCache(LocalFiles(), str(tmp_path), 1 << 20, offload, asyncio.Lock, reports.append)
        cache.clear()
        indexes = await cache.open_indexes(storage, CLUSTER, PARTITION, segments[1])
        for position, header in local.headers():
            assert indexes.offset_index.position_at_or_before(header.base_offset) <= position
        entries = indexes.offset_index.entries
        positions = {entries.entry_at(slot)[1] for slot in range(entries.count)}
        assert len(positions) > 2 and positions <= {position for position, _ in local.headers()}
        assert indexes.time_index.last_entry() == last_time
        await cache.release_indexes(indexes)
        assert len(reports) == 1 and key_of(segments[1], ObjectKind(suffix)) in reports[0]
        calls = storage.call_count
        await cache.release_indexes(await cache.open_indexes(storage, CLUSTER, PARTITION, segments[1]))
        assert storage.call_count == calls
        cache.close()

    run(story())


def test_an_index_that_is_made_from_damaged_batches_ends_before_the_damage(tmp_path: Path) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        log = written_log(tmp_path)
        local = log.segments[1]
        path = Path(local.path(".index"))
        path.write_bytes(b"\x70" + path.read_bytes()[1:])
        _, segments = await copied(log, storage)
        damaged = [position for position, _ in local.headers()][-2]
        bucket.damage(key_of(segments[1], ObjectKind.LOG), damaged + 70)
        reports: list[str] = []
        cache = RemoteIndexCache(LocalFiles(), str(tmp_path), 1 << 20, offload, asyncio.Lock, reports.append)
        cache.clear()
        indexes = await cache.open_indexes(storage, CLUSTER, PARTITION, segments[1])
        assert 0 < indexes.offset_index.last_position() < damaged
        assert len(reports) == 2 and f"at position {damaged}" in reports[1]
        cache.close()

    run(story())
