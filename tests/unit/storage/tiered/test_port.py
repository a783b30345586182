"""One suite for every implementation of the storage port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from moldau.storage.tiered.port import ObjectExists, ObjectNotFound, RemoteStorage, content_bytes, get_all, list_all
from tests.unit.storage.tiered.storages import Chunks, run, simulated

if TYPE_CHECKING:
    from tests.support.s3_server import S3Server


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    pytest.importorskip("obstore")
    pytest.importorskip("moto.moto_server.werkzeug_app")
    from tests.support.s3_server import S3Server

    server = S3Server()
    yield server
    server.close()


@pytest.fixture(params=["simulated", "directory", "s3", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteStorage:
    match request.param:
        case "simulated":
            return simulated()[0]
        case "directory":
            pytest.importorskip("aiofiles")
            from moldau.storage.tiered.directory_storage import DirectoryStorage

            return DirectoryStorage(str(tmp_path), Random(1))
        case "s3":
            server = request.getfixturevalue("s3_server")
            from tests.support.s3_server import bucket_of

            return bucket_of(server, request.node.name)
        case _:
            obstore_store = pytest.importorskip("obstore.store")
            from moldau.storage.tiered.object_storage import ObjectStorage

            opened = ObjectStorage("s3://unused")
            opened._store = obstore_store.MemoryStore()
            return opened


def test_a_put_is_read_back_whole_and_in_ranges(storage: RemoteStorage) -> None:
    async def story() -> None:
        await storage.put("topics/a", b"0123456789")
        assert await get_all(storage, "topics/a", 100) == b"0123456789"
        assert bytes(await storage.get("topics/a", 3, 4)) == b"3456"
        assert bytes(await storage.get("topics/a", 8, 100)) == b"89"
        assert bytes(await storage.get("topics/a", 10, 5)) == b""
        assert b"".join(await storage.get_parts("topics/a", 3, 4)) == b"3456"
        assert b"".join(await storage.get_parts("topics/a", 8, 100)) == b"89"
        assert b"".join(await storage.get_parts("topics/a", 10, 5)) == b""
        assert bytes(await storage.get("topics/a", 99, 5)) == b""
        assert bytes(await storage.get("topics/a", 2, 0)) == b""
        assert await storage.size("topics/a") == 10

    run(story())


def test_content_in_pieces_and_empty_content(storage: RemoteStorage) -> None:
    async def story() -> None:
        pieces = Chunks(b"a" * 3_000_000, b"b" * 3_000_000, b"c" * 500_000)
        await storage.put("topics/t/0/large", pieces)
        assert await storage.size("topics/t/0/large") == pieces.size == 6_500_000
        assert bytes(await storage.get("topics/t/0/large", 2_999_999, 2)) == b"ab"
        assert await get_all(storage, "topics/t/0/large", 7_000_000) == await content_bytes(pieces)
        await storage.put("topics/t/0/empty", b"")
        assert (await storage.size("topics/t/0/empty"), bytes(await storage.get("topics/t/0/empty", 0, 9))) == (0, b"")
        await storage.put("topics/t/0/no-pieces", Chunks())
        assert await storage.size("topics/t/0/no-pieces") == 0

    run(story())


def test_a_put_replaces_unless_it_must_create(storage: RemoteStorage) -> None:
    async def story() -> None:
        await storage.put("a", b"one", must_create=True)
        with pytest.raises(ObjectExists, match="a exists"):
            await storage.put("a", b"two", must_create=True)
        assert await get_all(storage, "a", 9) == b"one"
        await storage.put("a", b"three")
        assert await get_all(storage, "a", 9) == b"three"

    run(story())


def test_what_is_not_there_is_named(storage: RemoteStorage) -> None:
    async def story() -> None:
        await storage.put("dir/there", b"")
        for key in ("none", "dir/none", "dir/there/none"):
            with pytest.raises(ObjectNotFound, match=key):
                await storage.get(key, 0, 1)
            with pytest.raises(ObjectNotFound, match=key):
                await storage.get_parts(key, 0, 1)
            with pytest.raises(ObjectNotFound, match=key):
                await storage.size(key)
        await storage.delete(["none", "dir/none"])

    run(story())


def test_listings_are_sorted_paged_and_of_one_prefix(storage: RemoteStorage) -> None:
    async def story() -> None:
        keys = ["t/a-b/1", "t/a/0", "t/a/00.x", "t/a/1/z", "t/a/10", "t/ab/0", "u/0"]
        for key in keys:
            await storage.put(key, key.encode())
        assert [each.key async for each in list_all(storage, "")] == sorted(keys)
        inside = [key for key in sorted(keys) if key.startswith("t/a/")]
        assert [each[:2] for each in await storage.list("t/a/")] == [(key, len(key)) for key in inside]
        for page_size in (1, 2, 3):
            assert [each.key async for each in list_all(storage, "t/", page_size=page_size)] == sorted(keys)[:-1]
        assert list(await storage.list("nothing/")) == []
        assert [each.key for each in await storage.list("t/a/", after="t/a/1/z")] == ["t/a/10"]

    run(story())


def test_directories_are_one_level_below_a_prefix(storage: RemoteStorage) -> None:
    async def story() -> None:
        for key in ["t/a-b/1", "t/a/0", "t/a/1/z", "t/ab/0", "t/file", "u/0"]:
            await storage.put(key, b"content")
        assert list(await storage.list_directories("")) == ["t/", "u/"]
        assert list(await storage.list_directories("t/")) == ["t/a-b/", "t/a/", "t/ab/"]
        assert list(await storage.list_directories("t/a/")) == ["t/a/1/"]
        assert list(await storage.list_directories("t/ab/")) == list(await storage.list_directories("none/")) == []
        await storage.delete(["t/a/1/z", "u/0"])
        assert list(await storage.list_directories("t/a/")) == []
        assert list(await storage.list_directories("")) == ["t/"]

    run(story())


def test_deleting_removes_what_is_there(storage: RemoteStorage) -> None:
    async def story() -> None:
        for key in ("d/a", "d/b", "d/c"):
            await storage.put(key, b"x")
        await storage.delete(["d/a", "d/none", "d/c"])
        assert [each.key async for each in list_all(storage, "d/")] == ["d/b"]
        await storage.delete([])
        await storage.close()
        await storage.close()

    run(story())
