"""Repeated calls: how often, with which pauses, and what a lost answer must not turn into an error."""

from __future__ import annotations

from random import Random

import pytest

from moldau.storage.tiered.errors import AccessRefused, ObjectExists, ObjectNotFound, StorageUnavailable
from moldau.storage.tiered.port import get_all
from moldau.storage.tiered.retrying import RetryingStorage, RetryPolicy
from tests.support.simulated_storage import SimulatedBucket, StorageFaults
from tests.unit.storage.tiered.storages import Chunks, run, simulated


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
