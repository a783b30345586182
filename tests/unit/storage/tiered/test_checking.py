"""The check at the start of a broker, against simulated storage."""

from __future__ import annotations

import pytest

from moldau.storage.tiered.checking import check_cluster, check_storage
from moldau.storage.tiered.errors import (
    AccessRefused,
    CorruptObject,
    ObjectNotFound,
    RemoteStorageError,
    StorageFull,
    StorageMissing,
    StorageUnavailable,
    WrongCluster,
)
from tests.support.simulated_storage import SimulatedBucket, StorageFaults
from tests.unit.storage.tiered.storages import run, simulated


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
