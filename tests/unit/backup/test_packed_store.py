"""A store in one file: whole or not there, bounded, and read like any other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moldau.backup.capture.packed import CaptureTooLarge, ZipStore
from moldau.storage.tiered.port import (
    AccessRefused,
    CorruptObject,
    ObjectExists,
    ObjectNotFound,
    StorageMissing,
    list_all,
)


def written(path: Path, **objects: bytes) -> int:
    async def story(store: ZipStore) -> None:
        for key, content in objects.items():
            await store.put(key, content)

    with ZipStore.create_new(path, 1 << 20) as store:
        asyncio.run(story(store))
        return store.finish()


def test_what_was_put_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.capture"
    assert written(path, a=b"one", b=b"two", c=b"") == path.stat().st_size

    async def story(store: ZipStore) -> None:
        assert await store.get("a", 1, 10) == b"ne"
        assert (await store.size("b"), await store.get("c", 0, 1)) == (3, b"")
        assert [(each.key, each.size) async for each in list_all(store, "", page_size=2)] == [
            ("a", 3),
            ("b", 3),
            ("c", 0),
        ]
        with pytest.raises(ObjectNotFound, match="has no d"):
            await store.get("d", 0, 1)
        with pytest.raises(AccessRefused, match="only read"):
            await store.put("d", b"")
        with pytest.raises(AccessRefused, match="deleted"):
            await store.delete(["a"])

    with ZipStore.open_existing(path) as store:
        asyncio.run(story(store))


def test_a_file_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    with ZipStore.create_new(tmp_path / "a", 100) as store:
        asyncio.run(store.put("a", b"one"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    with ZipStore.create_new(tmp_path / "a", 100) as store, pytest.raises(CaptureTooLarge, match="more than 100 bytes"):
        asyncio.run(store.put("a", bytes(range(256))))
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageMissing, match="does not exist"):
        ZipStore.open_existing(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"no zip")
    with pytest.raises(CorruptObject, match="is not a capture"):
        ZipStore.open_existing(tmp_path / "a")
    with pytest.raises(ObjectExists, match="exists"):
        ZipStore.create_new(tmp_path / "a", 1)
    with pytest.raises(CorruptObject, match="is not a capture"):
        ZipStore.open_existing(tmp_path)


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    written(path, key=bytes(range(256)) * 8)
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with ZipStore.open_existing(path) as store, pytest.raises(CorruptObject, match="key"):
        asyncio.run(store.get("key", 0, 10_000))
