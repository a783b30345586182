"""The objects of a segment: all there before the manifest, none left after the removal, whatever fails between."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.storage.tiered.layout import ObjectKind, parse_key
from moldau.storage.tiered.port import RemoteStorageError, WrongCluster
from moldau.storage.tiered.segment_copy import get_manifest, remove_segment
from moldau.testing.simulation.storage import SimulatedBucket, StorageFaults
from tests.unit.storage.tiered.remote_partition import CLUSTER, PARTITION, copied, written_log
from tests.unit.storage.tiered.storages import run, simulated


def test_the_objects_are_the_files_of_the_segment(tmp_path: Path) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        log = written_log(tmp_path)
        _, segments = await copied(log, storage)
        assert len(segments) > 3
        for segment, file in zip(segments, log.segments, strict=False):
            manifest = await get_manifest(storage, CLUSTER, PARTITION, segment)
            assert manifest.objects[ObjectKind.LOG].size == file.size
        assert len(bucket.contents()) == 6 * len(segments)
        for key, data in bucket.contents().items():
            found = parse_key(key)
            assert found is not None and found.partition == PARTITION
            if found.kind in (ObjectKind.LOG, ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX):
                path = tmp_path / "t-0" / f"{found.start_offset:020d}{found.kind.value}"
                assert data == path.read_bytes()
        with pytest.raises(WrongCluster):
            await get_manifest(storage, "another", PARTITION, segments[0])

    run(story())


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_that_fails_has_no_manifest_and_is_removed(tmp_path: Path, seed: int) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        failing, _ = simulated(StorageFaults(refuses=0.05, cut_upload=0.05, loses_answer=0.05), bucket, seed)
        log = written_log(tmp_path)
        with pytest.raises(RemoteStorageError):
            while True:
                await copied(log, failing)
        storage, _ = simulated(bucket=bucket)
        by_segment: dict[tuple[int, bytes], set[ObjectKind]] = {}
        for found in map(parse_key, bucket.contents()):
            assert found is not None
            by_segment.setdefault((found.start_offset, found.segment_id), set()).add(found.kind)
        for kinds in by_segment.values():
            assert ObjectKind.MANIFEST not in kinds or len(kinds) == 6
        for start_offset, segment_id in by_segment:
            await remove_segment(storage, PARTITION, start_offset, segment_id)
            await remove_segment(storage, PARTITION, start_offset, segment_id)
        assert bucket.contents() == {}

    run(story())
