"""The remote storage that a URL names, the calls that are repeated, and the check of a storage."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import pytest

from moldau.storage.tiered.opening import RetryingStorage, RetryPolicy, check_cluster, check_storage, open_storage
from moldau.storage.tiered.port import (
    AccessRefused,
    CorruptObject,
    InvalidStorageUrl,
    ObjectExists,
    ObjectNotFound,
    RemoteStorageError,
    StorageFull,
    StorageMissing,
    StorageUnavailable,
    WrongCluster,
    get_all,
)
from moldau.testing.simulation.storage import SimulatedBucket, StorageFaults
from tests.unit.storage.tiered.storages import Chunks, VirtualTime, run, simulated


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_path_opens_a_directory(tmp_path: Path, scheme: str) -> None:
    pytest.importorskip("aiofiles")

    async def story() -> None:
        storage = open_storage(f"{scheme}{tmp_path}", Random(1), VirtualTime().sleep)
        await storage.put("a/b", b"1")
        assert await get_all(storage, "a/b", 9) == (tmp_path / "a" / "b").read_bytes() == b"1"

    run(story())


@pytest.mark.parametrize("url", ["relative/path", "", "bucket", "file://relative", "ftp://host/path"])
def test_anything_else_must_be_an_object_store(url: str) -> None:
    pytest.importorskip("obstore")
    with pytest.raises(InvalidStorageUrl):
        open_storage(url, Random(1), VirtualTime().sleep)


@pytest.mark.parametrize(
    ("url", "package", "module"),
    [("/tmp", "aiofiles", "directory_storage"), ("s3://bucket", "obstore", "object_storage")],
)
def test_a_package_that_is_missing_is_named(
    url: str, package: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"moldau.storage.tiered.{module}", raising=False)
    with pytest.raises(InvalidStorageUrl, match=rf"needs the package {package}: install moldau\[tiered\]"):
        open_storage(url, Random(1), VirtualTime().sleep)


def test_it_gives_up_after_its_attempts_and_pauses_grow() -> None:
    async def story() -> None:
        inner, time = simulated(StorageFaults(is_unreachable=True))
        storage = RetryingStorage(inner, time.sleep, Random(3), RetryPolicy(6, 1.0, 4.0))
        with pytest.raises(StorageUnavailable):
            await storage.size("a")
        pauses = [each for each in time.sleeps if each]
        assert inner.call_count == 6 and storage.retry_count == 5 == len(pauses)
        assert all(pause <= bound for pause, bound in zip(pauses, (1, 2, 4, 4, 4), strict=True))

    run(story())


@pytest.mark.parametrize("seed", range(30))
def test_with_many_faults_everything_arrives(seed: int) -> None:
    async def story() -> None:
        faults = StorageFaults(refuses=0.2, loses_answer=0.1, loses_request=0.1, cut_upload=0.2, delay_s=1, slow=0.1)
        bucket = SimulatedBucket()
        inner, time = simulated(faults, bucket, seed)
        storage = RetryingStorage(inner, time.sleep, Random(seed), RetryPolicy(40))
        await storage.put("a", Chunks(b"123", b"45"))
        await storage.put("b", b"xyz", must_create=True)
        with pytest.raises(ObjectExists):
            await storage.put("b", b"other", must_create=True)
        assert await get_all(storage, "a", 9) == b"12345"
        assert [each.key for each in await storage.list("")] == ["a", "b"]
        await storage.delete(["a"])
        with pytest.raises(ObjectNotFound):
            await storage.size("a")
        assert bucket.contents() == {"b": b"xyz"}

    run(story())


def test_what_will_not_pass_within_seconds_is_told_at_once() -> None:
    async def story() -> None:
        inner, time = simulated(StorageFaults(credentials_end_s=0))
        with pytest.raises(AccessRefused):
            await RetryingStorage(inner, time.sleep, Random(1)).size("a")
        assert inner.call_count == 1

    run(story())


def test_the_first_broker_claims_and_others_find_their_cluster() -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        first, _ = simulated(bucket=bucket)
        with pytest.raises(ObjectNotFound):
            await check_cluster(first, "ours")
        await check_storage(first, "ours", "1")
        await check_storage(simulated(bucket=bucket)[0], "ours", "2")
        assert list(bucket.contents()) == ["moldau-cluster.json"]
        with pytest.raises(WrongCluster, match="belongs to the cluster ours, not to theirs"):
            await check_storage(first, "theirs", "3")

    run(story())


@pytest.mark.parametrize(
    ("faults", "error", "words"),
    [
        (StorageFaults(is_away=True), StorageMissing, "does not exist"),
        (StorageFaults(is_unreachable=True), StorageUnavailable, "cannot be reached"),
        (StorageFaults(credentials_end_s=0), AccessRefused, "expired"),
        (StorageFaults(capacity_bytes=10), StorageFull, "full"),
    ],
)
def test_what_is_wrong_is_said(faults: StorageFaults, error: type[RemoteStorageError], words: str) -> None:
    with pytest.raises(error, match=words):
        run(check_storage(simulated(faults)[0], "ours", "1"))


def test_a_storage_that_can_only_be_read_is_named() -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        await check_storage(simulated(bucket=bucket)[0], "ours", "1")
        with pytest.raises(AccessRefused, match="can be read, but not be written"):
            await check_storage(simulated(StorageFaults(may_write=False), bucket)[0], "ours", "2")

    run(story())


def test_a_damaged_manifest_is_not_taken_for_a_missing_one() -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        await storage.put("moldau-cluster.json", b"{")
        with pytest.raises(CorruptObject, match=r"moldau-cluster\.json is not JSON"):
            await check_storage(storage, "ours", "1")

    run(story())


def test_what_crashed_puts_left_is_removed_from_a_directory(tmp_path: Path) -> None:
    pytest.importorskip("aiofiles")
    storage = open_storage(str(tmp_path), Random(1), VirtualTime().sleep)
    (tmp_path / ".uploads").mkdir()
    for name, second in (("old", 10), ("new", 30)):
        (tmp_path / ".uploads" / name).touch()
        os.utime(tmp_path / ".uploads" / name, (second, second))
    assert run(storage.remove_uploads(20_000)) == 1
    assert [each.name for each in (tmp_path / ".uploads").iterdir()] == ["new"]
    simulated_one, time = simulated()
    assert run(RetryingStorage(simulated_one, time.sleep, Random(1)).remove_uploads(20_000)) == 0
