"""Keeping, verifying and throttling backups."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from moldau.backup.layout import BACKUPS_PREFIX, METADATA_PREFIX, PIECES_PREFIX
from moldau.backup.retention import RUN_AGE_MS_MAX, UNNAMED_OBJECT_AGE_MS_MIN, RemovedBackups, remove_all_but_newest
from moldau.backup.sources.port import MetadataSnapshot
from moldau.backup.store import NoSuchBackup, NotABackupStore
from moldau.backup.throttle import CopyThrottle
from moldau.backup.verification import VerificationResult, verify_backup
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.snapshot.batches import snapshot_batches
from moldau.testing.simulation.storage import SimulatedBucket
from tests.unit.backup import logs
from tests.unit.backup.logs import NOW_MS, MemoryLog, backed_up, batches, restored, store_of
from tests.unit.storage.tiered.storages import VirtualTime


def kept(bucket: SimulatedBucket, count: int, now_ms: int = NOW_MS) -> RemovedBackups:
    return asyncio.run(remove_all_but_newest(store_of(bucket), count, now_ms))


def five_backups(bucket: SimulatedBucket) -> list[str]:
    """Backups of a log that grows, and whose start moves."""
    found = []
    for number in range(5):
        log = MemoryLog("orders", batches(0, 40 + 20 * number), start_offset=15 * number)
        found.append(backed_up(bucket, log).manifest.backup_id)
    return found


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_newest_backups_stay_whole_and_nothing_else_stays(count: int) -> None:
    bucket = SimulatedBucket()
    ids = five_backups(bucket)
    dropped = kept(bucket, count)
    assert dropped.backup_ids == ids[:-count]
    store = store_of(bucket)
    assert asyncio.run(store.backup_ids()) == ids[-count:]
    named = {key for key in bucket.objects if key.startswith((PIECES_PREFIX, METADATA_PREFIX))}
    for number, backup_id in enumerate(ids[-count:], 5 - count):
        manifest = asyncio.run(store.read_manifest(backup_id))
        got = restored(bucket, manifest)["orders-0"]
        assert got == batches(0, 40 + 20 * number)[-len(got) :] and got
    first = asyncio.run(store.read_manifest(ids[-count])).topics[0].partitions[0].pieces[0].first_offset
    ends = [int(key.split("/")[3].split("-")[1]) for key in named if key.startswith(PIECES_PREFIX)]
    assert min(ends) > first


def test_more_than_there_are_keeps_all() -> None:
    bucket = SimulatedBucket()
    five_backups(bucket)
    before = bucket.contents()
    assert kept(bucket, 9) == RemovedBackups([], 0, 0)
    assert bucket.contents() == before


def test_what_an_unfinished_run_has_stays() -> None:
    bucket = SimulatedBucket()
    store = store_of(bucket)
    first = backed_up(bucket, MemoryLog("orders", batches(0, 40))).manifest
    asyncio.run(store.put_unfinished(first))
    second = backed_up(bucket, MemoryLog("other", batches(0, 40))).manifest
    asyncio.run(store.put_unfinished(first))
    kept(bucket, 1)
    assert restored(bucket, first)["orders-0"] == batches(0, 40)
    assert asyncio.run(store.backup_ids()) == [second.backup_id]


def test_what_a_run_in_progress_may_find_in_the_store_stays() -> None:
    """It does not store a piece again that is there, and names it later."""
    bucket = SimulatedBucket()
    store = store_of(bucket)
    first = backed_up(bucket, MemoryLog("orders", batches(0, 40))).manifest
    second = backed_up(bucket, MemoryLog("other", batches(0, 40))).manifest
    asyncio.run(store.put_unfinished(replace(second, backup_id="20261129T220640Z-9")))
    (run,) = asyncio.run(store.unfinished_runs())
    bucket.objects[run.key].put_at_s = NOW_MS / 1_000
    assert kept(bucket, 1, NOW_MS + RUN_AGE_MS_MAX) == RemovedBackups([first.backup_id], 0, 0)
    assert restored(bucket, first)["orders-0"] == batches(0, 40)
    assert kept(bucket, 1, NOW_MS + RUN_AGE_MS_MAX + 1).object_count > 0, "the run was killed"


def test_objects_that_nothing_has_named_stay_for_a_day() -> None:
    bucket = SimulatedBucket()
    five_backups(bucket)
    bucket.store(f"{PIECES_PREFIX}x/0/left", b"1234")
    bucket.objects[f"{PIECES_PREFIX}x/0/left"].put_at_s = NOW_MS / 1_000
    for each in bucket.objects.values():
        each.put_at_s = NOW_MS / 1_000
    assert kept(bucket, 9, NOW_MS + UNNAMED_OBJECT_AGE_MS_MIN).object_count == 0
    assert kept(bucket, 9, NOW_MS + UNNAMED_OBJECT_AGE_MS_MIN + 1) == RemovedBackups([], 1, 4)


def test_each_backup_has_an_id_of_its_own() -> None:
    ids = five_backups(SimulatedBucket())
    assert ids == [f"20261129T220640Z-{number}" for number in range(1, 6)]


def test_a_backup_of_the_same_second_is_newer_than_those_that_were_kept() -> None:
    bucket = SimulatedBucket()
    for number in range(1, 5):
        newest = backed_up(bucket, MemoryLog("orders", batches(0, 20 * number))).manifest.backup_id
        kept(bucket, 1)
        assert asyncio.run(store_of(bucket).backup_ids()) == [newest]


def test_a_backup_that_is_not_there_is_told() -> None:
    bucket = SimulatedBucket()
    with pytest.raises(NotABackupStore):
        asyncio.run(store_of(bucket).read_cluster_id())
    with pytest.raises(NoSuchBackup, match="no backup x"):
        asyncio.run(store_of(bucket).read_manifest("x"))


# Verifying


def verified(bucket: SimulatedBucket, backup_id: str) -> VerificationResult:
    store = store_of(bucket)

    async def verify() -> VerificationResult:
        return await verify_backup(store.storage, await store.read_manifest(backup_id), lambda size, total: None)

    return asyncio.run(verify())


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of these tests come with a snapshot that can be read."""
    data = b"".join(
        snapshot_batches([], QuorumDescription(), metadata_version=30, epoch=1, last_contained_ms=0, now_ms=0)
    )

    monkeypatch.setattr(logs, "MetadataSnapshot", lambda end, epoch, _: MetadataSnapshot(end, epoch, data))


@pytest.mark.usefixtures("metadata")
def test_a_sound_backup_is_verified() -> None:
    bucket = SimulatedBucket()
    taken = backed_up(bucket, MemoryLog("orders", batches(0, 60)))
    manifest = taken.manifest
    assert verified(bucket, manifest.backup_id) == VerificationResult(taken.piece_count + 1, manifest.size, [])


@pytest.mark.usefixtures("metadata")
def test_each_damaged_or_missing_object_is_named() -> None:
    bucket = SimulatedBucket()
    backup_id = backed_up(bucket, MemoryLog("orders", batches(0, 60))).manifest.backup_id
    pieces = sorted(key for key in bucket.objects if key.startswith((PIECES_PREFIX, METADATA_PREFIX)))
    for key in pieces:
        data = bucket.objects[key].data
        bucket.damage(key, len(data) // 2)
        (problem,) = verified(bucket, backup_id).problems
        assert key in problem and "checksum" in problem
        del bucket.objects[key]
        (problem,) = verified(bucket, backup_id).problems
        assert f"{key} does not exist" in problem
        bucket.store(key, data)
    assert not verified(bucket, backup_id).problems
    assert len(pieces) > 5 and any(key.startswith(BACKUPS_PREFIX) for key in bucket.objects)


# Throttling


def test_the_mean_rate_stays_below_the_bound() -> None:
    time = VirtualTime()
    throttle = CopyThrottle(100.0, time.now, time.sleep)

    async def spend() -> None:
        for _ in range(10):
            await throttle.wait_for_bytes(50)

    asyncio.run(spend())
    assert time.now_s == 4.5  # The last one may pass when the nine before it have taken their half second.


def test_idle_time_is_not_saved_up() -> None:
    time = VirtualTime()
    throttle = CopyThrottle(100.0, time.now, time.sleep)

    async def spend() -> None:
        await throttle.wait_for_bytes(100)
        time.now_s += 100
        await throttle.wait_for_bytes(100)
        await throttle.wait_for_bytes(100)

    asyncio.run(spend())
    assert time.now_s == 101
