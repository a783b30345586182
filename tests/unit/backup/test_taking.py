"""Taking backups: what is new is copied, what is there is not, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from moldau.backup import taking
from moldau.backup.layout import PIECES_PREFIX, UNFINISHED_PREFIX
from moldau.backup.sources.port import LogDeleted
from moldau.backup.store import NotABackupStore
from moldau.backup.taking import BackupProgress, BackupResult, DamagedLog, take_backup
from moldau.storage.tiered.port import AccessRefused, RemoteStorageError, StorageFull, WrongCluster
from moldau.testing.simulation.storage import SimulatedBucket, StorageFaults
from tests.unit.backup.logs import (
    PIECE_SIZE,
    MemoryLog,
    MemorySource,
    backed_up,
    batch,
    batches,
    part_of,
    restored,
    shell_of,
    store_of,
)


def pieces_in(bucket: SimulatedBucket) -> set[str]:
    return {key for key in bucket.objects if key.startswith(PIECES_PREFIX)}


def test_a_backup_has_the_logs() -> None:
    bucket = SimulatedBucket()
    orders, empty = MemoryLog("orders", batches(0, 60)), MemoryLog("empty", [], start_offset=9)
    taken = backed_up(bucket, orders, empty)
    assert restored(bucket, taken.manifest) == {"empty-0": [], "orders-0": orders.log}
    assert taken.progress == BackupProgress(2, 2, len(b"".join(orders.log)), 0)


def test_a_second_backup_copies_what_is_new() -> None:
    bucket = SimulatedBucket()
    log = MemoryLog("orders", batches(0, 60))
    first = backed_up(bucket, log)
    before = pieces_in(bucket)
    more = MemoryLog("orders", batches(0, 64))
    second = backed_up(bucket, more)
    assert second.progress.copied_size == len(b"".join(batches(60, 64)))
    assert second.progress.kept_size == first.progress.copied_size
    assert more.reads[0] == 60
    assert before < pieces_in(bucket)
    assert restored(bucket, second.manifest)["orders-0"] == more.log
    assert restored(bucket, first.manifest)["orders-0"] == log.log


def test_a_second_backup_of_the_same_writes_no_piece() -> None:
    bucket = SimulatedBucket()
    backed_up(bucket, MemoryLog("orders", batches(0, 60)))
    again = backed_up(bucket, MemoryLog("orders", batches(0, 60)))
    assert (again.piece_count, again.progress.copied_size) == (0, 0)


def test_a_topic_that_was_made_again_is_copied_anew() -> None:
    bucket = SimulatedBucket()
    backed_up(bucket, MemoryLog("orders", batches(0, 60)))
    log = MemoryLog("orders2", batches(0, 60, value=b"other"))
    assert restored(bucket, backed_up(bucket, log).manifest)["orders2-0"] == log.log


def test_a_log_whose_history_changed_is_copied_anew() -> None:
    """After an unclean election other batches are at offsets that an earlier backup has: of the epoch that it has last,
    the log has nothing or less.
    """
    for shared in (40, 44):
        bucket = SimulatedBucket()
        backed_up(bucket, MemoryLog("orders", [*batches(0, 40), *batches(40, 60, epoch=1)]))
        same = [*batches(0, 40), *batches(40, shared, epoch=1)]
        log = MemoryLog("orders", [*same, *batches(shared, 80, epoch=2, value=b"other")])
        assert restored(bucket, backed_up(bucket, log).manifest)["orders-0"] == log.log


def test_a_log_that_is_shorter_now_keeps_what_it_has() -> None:
    """A source may be asked that is behind the one of the last backup."""
    bucket = SimulatedBucket()
    backed_up(bucket, MemoryLog("orders", batches(0, 60)))
    log = MemoryLog("orders", batches(0, 60), end=30)
    taken = backed_up(bucket, log)
    assert restored(bucket, taken.manifest)["orders-0"] == batches(0, 30)
    assert taken.progress.kept_size > 0


def test_pieces_before_the_log_start_are_left_out() -> None:
    bucket = SimulatedBucket()
    backed_up(bucket, MemoryLog("orders", batches(0, 60)))
    taken = backed_up(bucket, MemoryLog("orders", batches(0, 60), start_offset=31))
    part = part_of(taken)
    assert part.start_offset == 31 and part.pieces[0].first_offset <= 31 < part.pieces[0].end_offset
    gone = backed_up(bucket, MemoryLog("orders", batches(80, 90), start_offset=80))
    assert restored(bucket, gone.manifest)["orders-0"] == batches(80, 90)


def test_retention_may_move_the_start_while_a_log_is_copied() -> None:
    bucket = SimulatedBucket()
    log = MemoryLog("orders", batches(0, 60))

    def move(offset: int) -> None:
        if offset >= 20:
            log.start_offset = max(log.start_offset, 40)

    log.before_read = move
    log.end = 60
    part = part_of(backed_up(bucket, log))
    assert (part.start_offset, part.end_offset) == (40, 60)
    assert part.pieces[0].first_offset == 40


def test_a_topic_may_be_deleted_while_a_backup_is_taken() -> None:
    bucket = SimulatedBucket()
    kept, gone = MemoryLog("orders", batches(0, 60)), MemoryLog("trial", batches(0, 60))
    logs = [kept, gone]

    def delete(offset: int) -> None:
        if offset >= 20:
            logs.remove(gone)
            raise LogDeleted("topic trial was deleted while it was read")

    gone.before_read = delete
    taken = asyncio.run(take_backup(store_of(bucket), MemorySource(logs), shell_of(), piece_size=PIECE_SIZE))
    assert restored(bucket, taken.manifest) == {"orders-0": kept.log}
    assert (taken.progress.copied_size, taken.progress.kept_size) == (0, len(b"".join(kept.log))), "nothing twice"
    gone.before_read, logs = delete, [gone] * 9
    with pytest.raises(LogDeleted):
        backed_up(bucket, *logs)


def test_many_small_pieces_become_one() -> None:
    bucket = SimulatedBucket()
    counts = []
    for end in range(2, 80, 2):
        taken = backed_up(bucket, log := MemoryLog("orders", batches(0, end)))
        counts.append(len(part_of(taken).pieces))
        assert restored(bucket, taken.manifest)["orders-0"] == log.log
    assert max(counts) <= taking.SMALL_PIECES_MAX + 1


def test_a_damaged_log_is_refused_and_no_backup_is_made() -> None:
    bucket = SimulatedBucket()
    damaged = bytearray(batch(2))
    damaged[-1] ^= 1
    with pytest.raises(DamagedLog, match="orders-0 in memory/orders: the checksum of the batch at offset 2"):
        backed_up(bucket, MemoryLog("orders", [batch(0), bytes(damaged), batch(4)]))
    assert not asyncio.run(store_of(bucket).backup_ids())


# Runs that end


def taken_with(bucket: SimulatedBucket, faults: StorageFaults, *logs: MemoryLog) -> BackupResult:
    store = store_of(bucket, faults)
    return asyncio.run(take_backup(store, MemorySource(logs), shell_of(), piece_size=PIECE_SIZE))


def test_a_run_that_ended_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each of its reads the run is killed once; the next run copies what was not written down, and no more."""
    monkeypatch.setattr(taking, "UNFINISHED_MANIFEST_BYTES_MIN", 1)
    monkeypatch.setattr(taking, "UNFINISHED_MANIFEST_DIVISOR", 0)
    all_batches = batches(0, 60)
    total = len(MemoryLog("orders", all_batches).log)

    class Killed(BaseException):
        pass

    copied = []
    for kill_at in range(2, 60, 6):
        bucket = SimulatedBucket()

        def kill(offset: int, kill_at: int = kill_at) -> None:
            if offset >= kill_at:
                raise Killed

        with pytest.raises(Killed):
            backed_up(bucket, MemoryLog("orders", all_batches, before_read=kill))
        assert not asyncio.run(store_of(bucket).backup_ids())
        there = pieces_in(bucket)
        taken = backed_up(bucket, log := MemoryLog("orders", all_batches))
        assert restored(bucket, taken.manifest)["orders-0"] == all_batches
        assert there <= pieces_in(bucket)
        assert not any(key.startswith(UNFINISHED_PREFIX) for key in bucket.objects)
        copied.append(taken.progress.copied_size)
        assert taken.progress.kept_size == sum(len(bucket.objects[key].data) for key in there)
        assert log.reads[0] == max([0, *(int(key.rpartition("/")[2].split("-")[1]) for key in there)])
    assert copied == sorted(copied, reverse=True) and copied[-1] < copied[0] and total


def test_a_full_store_loses_nothing_and_the_next_run_goes_on() -> None:
    bucket = SimulatedBucket()
    log = MemoryLog("orders", batches(0, 60))
    first = backed_up(bucket, MemoryLog("orders", batches(0, 20)))
    room = sum(len(each.data) for each in bucket.objects.values()) + 1_500
    with pytest.raises(StorageFull):
        taken_with(bucket, StorageFaults(capacity_bytes=room), log)
    assert restored(bucket, first.manifest)["orders-0"] == batches(0, 20)
    assert asyncio.run(store_of(bucket).backup_ids()) == [first.manifest.backup_id]
    assert restored(bucket, backed_up(bucket, log).manifest)["orders-0"] == log.log


def test_a_store_without_the_right_to_write_stays_as_it_is() -> None:
    bucket = SimulatedBucket()
    backed_up(bucket, MemoryLog("orders", batches(0, 20)))
    before = bucket.contents()
    with pytest.raises(AccessRefused, match="not allowed"):
        taken_with(bucket, StorageFaults(may_write=False), MemoryLog("orders", batches(0, 60)))
    assert bucket.contents() == before


def test_faults_of_the_store_never_make_a_backup_that_is_not_whole() -> None:
    """Whatever call fails: a manifest that is there names what is there."""
    finished = 0
    for seed in range(40):
        bucket, random = SimulatedBucket(), Random(seed)
        for end in (20, 40, 60):
            log = MemoryLog("orders", batches(0, end))
            faults = StorageFaults(cut_upload=0.1, refuses=0.05, loses_answer=0.05)
            try:
                store = store_of(bucket, faults)
                store.storage._random = Random(random.random())  # type: ignore[attr-defined]
                asyncio.run(take_backup(store, MemorySource([log]), shell_of(), piece_size=PIECE_SIZE))
            except RemoteStorageError:
                pass
            store = store_of(bucket)
            for backup_id in asyncio.run(store.backup_ids()):
                manifest = asyncio.run(store.read_manifest(backup_id))
                ((_, part),) = manifest.partitions()
                assert restored(bucket, manifest)["orders-0"] == batches(0, part.end_offset)
                finished += 1
    assert finished > 10


# Stores that are something else


def test_the_store_of_another_cluster_is_refused() -> None:
    bucket = SimulatedBucket()
    backed_up(bucket, MemoryLog("orders", batches(0, 20)))
    before = bucket.contents()
    with pytest.raises(WrongCluster, match="of the cluster GxYvZLWkQkO8LtvI8XHoYQ, and this is other"):
        asyncio.run(take_backup(store_of(bucket), MemorySource([], "other"), shell_of()))
    assert bucket.contents() == before


def test_a_place_with_other_objects_is_refused() -> None:
    bucket = SimulatedBucket()
    bucket.store("photos/cat.jpg", b"cat")
    with pytest.raises(NotABackupStore, match="other objects"):
        backed_up(bucket, MemoryLog("orders", batches(0, 20)))
    assert bucket.contents() == {"photos/cat.jpg": b"cat"}
