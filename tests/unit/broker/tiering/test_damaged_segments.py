"""A leader whose disk damages a segment before it is copied: of damaged batches nothing is copied, and the indexes of a
copy are made from the batches."""

from __future__ import annotations

import asyncio
import json

import pytest

from moldau.broker.tiering.remote_partitions import FollowedRemoteLog
from moldau.protocol.primitives import crc32c
from moldau.storage.files.log_paths import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from moldau.storage.segment.segment import Segment
from moldau.storage.segment.sparse_index import OFFSET_ENTRY
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.metadata.records import RemoteChange
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from tests.support.node import Node
from tests.support.tiered_node import (
    URL,
    copied,
    fill,
    followed_of,
    is_copied,
    partition_of,
    serve_tiered,
    tiered_topic,
    tiering_of,
    until,
)


async def rolled(node: Node) -> Segment:
    """A rolled segment that is on the disk and not copied, because the storage is away."""
    client = await node.connect()
    node.host.storage_faults.is_away = True
    await tiered_topic(client, internal_segment_bytes=1200, index_interval_bytes=1, flush_messages=1)
    await fill(client, count=40)
    await asyncio.sleep(8)
    assert not copied(node)
    return partition_of(node).log.segments[1]


def stored(node: Node, segment: Segment, kind: ObjectKind) -> bytes:
    """An object of the copy of a local segment."""
    (found,) = [each for each in copied(node) if each.start_offset == segment.base_offset]
    return node.world.buckets[URL].contents()[
        object_key(followed_of(node).key, found.start_offset, found.segment_id, kind)
    ]


def test_a_segment_with_a_damaged_batch_stays_local_and_is_copied_once_it_is_sound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(node: Node) -> None:
        segment = await rolled(node)
        log, disk = partition_of(node).log, node.host.disk
        _, second = [position for position, _ in segment.headers()][:2]
        disk.flip_bit(segment.path(".log"), second + 65)
        node.host.storage_faults.is_away = False
        caplog.clear()
        await asyncio.sleep(60)
        assert [each.start_offset for each in copied(node)] == [0]
        assert log.segments[1] is segment and log.failure is None, "the only replica goes on"
        assert not followed_of(node).remote_log.unfinished_copies()
        told = [each.getMessage() for each in caplog.records if "checksum mismatch" in each.getMessage()]
        path, offset = segment.path(".log"), segment.base_offset + 2
        assert f"{path}: checksum mismatch at position {second}, offset {offset}" in told[0]
        assert 2 <= len(told) <= 20, "the copy is tried again with backoff"
        disk.mend_rot()
        await until(lambda: is_copied(node), "all is copied")
        assert stored(node, segment, ObjectKind.LOG) == disk.read(path)

    serve_tiered(story)


@pytest.mark.parametrize(
    ("suffix", "position", "is_told"),
    [
        pytest.param(OFFSET_INDEX_SUFFIX, 0, True, id="first offset"),
        pytest.param(OFFSET_INDEX_SUFFIX, 3 * OFFSET_ENTRY.size, True, id="inner offset"),
        pytest.param(OFFSET_INDEX_SUFFIX, 3 * OFFSET_ENTRY.size + 7, False, id="a position, still in order"),
        pytest.param(OFFSET_INDEX_SUFFIX, -OFFSET_ENTRY.size, True, id="last offset"),
        pytest.param(TIME_INDEX_SUFFIX, -1, False, id="offset of a time, still in order"),
    ],
)
def test_a_damaged_index_file_is_not_copied(
    suffix: str, position: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(node: Node) -> None:
        segment = await rolled(node)
        disk, path = node.host.disk, segment.path(suffix)
        sound = bytes(disk.read(path))
        disk.flip_bit(path, position % len(sound))
        damaged = bytes(disk.read(path))
        assert damaged != sound
        caplog.clear()
        node.host.storage_faults.is_away = False
        await until(lambda: is_copied(node), "all is copied")
        assert stored(node, segment, ObjectKind(suffix)) == sound
        assert bytes(disk.read(path)) == damaged, "the local file stays as it is"
        told = [each.getMessage() for each in caplog.records if path in each.getMessage()]
        if is_told:
            assert len(told) == 1 and "is made from the batches" in told[0]

    serve_tiered(story)


def test_bytes_that_change_between_their_check_and_their_upload_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        segment = await rolled(node)
        disk, writer = node.host.disk, tiering_of(node).writer
        write, path = writer.write, segment.path(".log")

        async def damaging(followed: FollowedRemoteLog, change: RemoteChange) -> None:
            if isinstance(change, RemoteSegment) and change.start_offset == segment.base_offset:
                disk.mend_rot()
                disk.flip_bit(path, 65)
            await write(followed, change)

        vars(writer)["write"] = damaging
        node.host.storage_faults.is_away = False
        await asyncio.sleep(60)
        assert [each.start_offset for each in copied(node)] == [0]
        assert any("changed after their check" in each.getMessage() for each in caplog.records)
        del vars(writer)["write"]
        disk.mend_rot()
        await until(lambda: is_copied(node), "all is copied")
        assert stored(node, segment, ObjectKind.LOG) == disk.read(path)

    serve_tiered(story)


def test_a_consumer_reads_a_segment_whose_remote_index_is_out_of_order(caplog: pytest.LogCaptureFixture) -> None:
    """An earlier version has copied it: its manifest has the checksum of the damaged bytes."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, internal_segment_bytes=1200, index_interval_bytes=1, local_retention_bytes=1)
        await fill(client, count=40)
        log = partition_of(node).log
        await until(lambda: log.segments == [log.active], "the copied segments are deleted here")
        bucket, segment = node.world.buckets[URL], copied(node)[1]
        key, manifest = (
            object_key(followed_of(node).key, segment.start_offset, segment.segment_id, kind)
            for kind in (ObjectKind.OFFSET_INDEX, ObjectKind.MANIFEST)
        )
        bucket.damage(key, 2 * OFFSET_ENTRY.size)
        fields = json.loads(bucket.contents()[manifest])
        fields["objects"]["index"]["crc32c"] = f"{crc32c(bucket.contents()[key], 0):08x}"
        bucket.store(manifest, json.dumps(fields).encode())
        caplog.clear()
        for offset in range(segment.start_offset, segment.last_offset + 1):
            answer = await client.fetch("t", offset, max_wait_ms=2000)
            assert answer.error_code == 0 and answer.records
        told = [each.getMessage() for each in caplog.records if key in each.getMessage()]
        assert len(told) == 1 and "made from its .log object" in told[0]
        assert tiering_of(node).source.indexes.miss_count == 1

    serve_tiered(story)
