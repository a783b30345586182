"""A verification reads every byte: damage of any object, anywhere, is in the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from moldau.storage.tiered.layout import REQUIRED_KINDS, ObjectKind, object_key
from moldau.storage.tiered.port import StorageUnavailable
from moldau.storage.tiered.segment_verification import verify_segment
from moldau.testing.simulation.storage import SimulatedBucket
from tests.unit.storage.tiered.remote_partition import CLUSTER, PARTITION, copied, written_log
from tests.unit.storage.tiered.storages import run, simulated


def test_a_whole_segment_has_no_problems(tmp_path: Path) -> None:
    async def story() -> None:
        storage, _ = simulated()
        _, segments = await copied(written_log(tmp_path), storage)
        for segment in segments:
            report = await verify_segment(storage, CLUSTER, PARTITION, segment)
            assert (report.problems, report.object_count) == ([], 5)
            assert report.batch_count >= 1 and report.bytes_read > segment.size

    run(story())


@pytest.mark.parametrize("kind", [*REQUIRED_KINDS, ObjectKind.MANIFEST])
@pytest.mark.parametrize("seed", range(5))
def test_a_damaged_byte_anywhere_is_found(tmp_path: Path, kind: ObjectKind, seed: int) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        _, segments = await copied(written_log(tmp_path), storage)
        key = object_key(PARTITION, segments[0].start_offset, segments[0].segment_id, kind)
        content = bucket.contents()[key]
        # In a manifest only what stands in quotes and numbers matters.
        position = (
            content.index(b'"crc32c": "') + 11 if kind is ObjectKind.MANIFEST else Random(seed).randrange(len(content))
        )
        bucket.damage(key, position)
        report = await verify_segment(storage, CLUSTER, PARTITION, segments[0])
        assert len(report.problems) == 1 and "topics/t." in report.problems[0]

    run(story())


def test_what_is_missing_short_or_of_others_is_found(tmp_path: Path) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        _, segments = await copied(written_log(tmp_path), storage)
        first, second = segments[:2]
        key = object_key(PARTITION, first.start_offset, first.segment_id, ObjectKind.LOG)
        await storage.put(key, bucket.contents()[key][:-1])
        index = object_key(PARTITION, first.start_offset, first.segment_id, ObjectKind.OFFSET_INDEX)
        await storage.delete([index])
        problems = (await verify_segment(storage, CLUSTER, PARTITION, first)).problems
        assert problems[0].startswith(f"{key} has ") and problems[1] == f"{index} does not exist"
        (problem,) = (await verify_segment(storage, "another", PARTITION, second)).problems
        assert f"belongs to the cluster {CLUSTER}, not to another" in problem
        (problem,) = (await verify_segment(storage, CLUSTER, PARTITION, replace(second, size=second.size + 1))).problems
        assert "bytes of records" in problem

    run(story())


def test_a_storage_that_does_not_answer_is_no_finding(tmp_path: Path) -> None:
    async def story() -> None:
        storage, _ = simulated()
        _, segments = await copied(written_log(tmp_path), storage)
        storage.faults.is_unreachable = True
        with pytest.raises(StorageUnavailable):
            await verify_segment(storage, CLUSTER, PARTITION, segments[0])

    run(story())
