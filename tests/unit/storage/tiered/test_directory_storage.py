"""A directory as remote storage: what a crash leaves, and what the disk's errors become."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("aiofiles")

from moldau.protocol.primitives import BytesLike
from moldau.storage.tiered.directory_storage import DirectoryStorage
from moldau.storage.tiered.port import AccessRefused, StorageFull, StorageMissing, StorageUnavailable, list_all
from tests.unit.storage.tiered.storages import run


class FailingChunks:
    """A content that fails after its first piece."""

    size = 10

    async def chunks(self) -> AsyncIterator[BytesLike]:
        yield b"12345"
        raise RuntimeError("the disk of the log failed")


def test_a_put_that_fails_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        storage = DirectoryStorage(str(tmp_path), Random(1))
        with pytest.raises(RuntimeError):
            await storage.put("t/a", FailingChunks())
        assert [each async for each in list_all(storage, "")] == []
        assert list((tmp_path / ".uploads").iterdir()) == []

    run(story())


def test_an_upload_is_an_object_once_it_has_its_key(tmp_path: Path) -> None:
    async def story() -> None:
        storage = DirectoryStorage(str(tmp_path), Random(1))
        upload, dropped = storage.begin_upload(), storage.begin_upload()
        for data in (b"12", memoryview(b"345")):
            upload.write(data)
            dropped.write(data)
        assert [each async for each in list_all(storage, "")] == []
        await upload.complete("t/a")
        upload.discard()
        dropped.discard()
        dropped.discard()
        assert [each.key async for each in list_all(storage, "")] == ["t/a"]
        assert (tmp_path / "t/a").read_bytes() == b"12345"
        assert (tmp_path / "t/a").stat().st_mode & 0o777 == 0o640
        assert list((tmp_path / ".uploads").iterdir()) == []

    run(story())


def test_an_upload_into_a_root_that_is_missing_is_refused(tmp_path: Path) -> None:
    upload = DirectoryStorage(str(tmp_path / "away"), Random(1)).begin_upload()
    with pytest.raises(StorageMissing, match="does not exist, or is not mounted"):
        upload.write(b"1")
    upload.discard()


def test_objects_are_for_the_owner_and_its_group(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        run(DirectoryStorage(str(tmp_path), Random(1)).put("t/a", b"1"))
    finally:
        os.umask(before)
    assert [(tmp_path / each).stat().st_mode & 0o777 for each in ("t", "t/a")] == [0o750, 0o640]


def test_what_a_crash_left_is_not_listed_and_is_removed_by_age(tmp_path: Path) -> None:
    async def story() -> None:
        storage = DirectoryStorage(str(tmp_path), Random(1))
        assert await storage.remove_uploads(10**15) == 0
        await storage.put("t/a", b"1")
        for name, changed_s in (("old", 1000), ("new", 3000)):
            (tmp_path / ".uploads" / name).write_bytes(b"half")
            os.utime(tmp_path / ".uploads" / name, (changed_s, changed_s))
        assert [each.key async for each in list_all(storage, "")] == ["t/a"]
        assert await storage.remove_uploads(2_000_000) == 1
        assert [each.name for each in (tmp_path / ".uploads").iterdir()] == ["new"]

    run(story())


def test_a_root_that_is_away_is_not_an_empty_storage(tmp_path: Path) -> None:
    async def story() -> None:
        storage = DirectoryStorage(str(tmp_path / "mount"), Random(1))
        for call in (storage.put("a", b"1"), storage.get("a", 0, 1), storage.size("a"), storage.list("")):
            with pytest.raises(StorageMissing, match="not mounted"):
                await call
        assert not (tmp_path / "mount").exists()
        (tmp_path / "mount").mkdir()
        await storage.put("a", b"1")

    run(story())


@pytest.mark.parametrize(
    ("number", "error"), [("ENOSPC", StorageFull), ("EROFS", AccessRefused), ("EIO", StorageUnavailable)]
)
def test_errors_of_the_disk_are_those_of_the_port(tmp_path: Path, number: str, error: type[Exception]) -> None:
    import errno

    storage = DirectoryStorage(str(tmp_path), Random(1))
    told = storage._error("a", OSError(getattr(errno, number), "told so"))
    assert type(told) is error and "a: told so" in str(told)


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/..", ".uploads/x"])
def test_a_key_never_leaves_the_root(tmp_path: Path, key: str) -> None:
    with pytest.raises(AssertionError):
        run(DirectoryStorage(str(tmp_path), Random(1)).get(key, 0, 1))
