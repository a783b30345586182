"""Backups into a directory, whose pieces are written while they are cut."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("aiofiles")

from moldau.backup.store import BackupStore
from moldau.backup.taking import BackupResult, DamagedLog, take_backup
from moldau.protocol.primitives import BytesLike
from moldau.storage.tiered.directory_storage import DirectoryStorage
from moldau.testing.simulation.storage import SimulatedBucket
from tests.unit.backup.logs import PIECE_SIZE, MemoryLog, MemorySource, backed_up, batch, batches, part_of, shell_of


def taken_into(directory: Path, *logs: MemoryLog) -> BackupResult:
    """A backup into a directory, whose pieces are files before they have their keys."""
    storage = DirectoryStorage(str(directory), Random(1))
    store = BackupStore(storage, storage)
    return asyncio.run(take_backup(store, MemorySource(logs), shell_of(), piece_size=PIECE_SIZE))


def contents_of(directory: Path) -> dict[str, bytes]:
    return {str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def test_a_directory_gets_the_objects_that_any_store_gets(tmp_path: Path) -> None:
    bucket, logs = SimulatedBucket(), (MemoryLog("orders", batches(0, 60)), MemoryLog("empty", [], start_offset=9))
    assert taken_into(tmp_path, *logs).progress == backed_up(bucket, *logs).progress
    assert contents_of(tmp_path) == bucket.contents()


def test_a_damaged_log_leaves_no_file_that_is_not_whole(tmp_path: Path) -> None:
    damaged = bytearray(batch(30))
    damaged[-1] ^= 1
    with pytest.raises(DamagedLog, match="the checksum of the batch at offset 30"):
        taken_into(tmp_path, MemoryLog("orders", [*batches(0, 30), bytes(damaged)]))
    assert not list((tmp_path / ".uploads").iterdir())
    taken = taken_into(tmp_path, MemoryLog("orders", batches(0, 60)))
    assert part_of(taken).end_offset == 60
    assert taken.progress.kept_size > 0, "the pieces before the damage are not copied again"


def test_a_write_that_fails_for_a_moment_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the content of a piece in memory can be put again: the log is read again from the last whole piece."""
    failing = iter([False] * 5 + [True])
    write = os.write

    def failing_write(descriptor: int, data: BytesLike) -> int:
        if next(failing, False):
            raise OSError(errno.EIO, "Input/output error")
        return write(descriptor, data)

    monkeypatch.setattr("moldau.storage.tiered.directory_storage.os.write", failing_write)
    taken = taken_into(tmp_path, MemoryLog("orders", batches(0, 60)))
    bucket = SimulatedBucket()
    assert taken.progress == backed_up(bucket, MemoryLog("orders", batches(0, 60))).progress
    assert contents_of(tmp_path) == bucket.contents()
    assert next(failing, None) is None
