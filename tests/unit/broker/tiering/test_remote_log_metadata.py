"""The records of the metadata topic are decoded only if they are whole and in order, and each remote log gets all of
its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from moldau.broker.tiering.remote_log_metadata import RemoteLogMetadataReader, decode_changes
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.records import encode_change
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment

T = TypeVar("T")
KEYS = (RemotePartition("t", bytes(range(16)), 0), RemotePartition("t", bytes(range(16)), 1))

LAST_OFFSET_DELTA = 23
"""The position of this field in a batch."""


def stored(*offsets: int) -> bytearray:
    record = Record(value=b"unreadable", timestamp=0)
    return bytearray(b"".join(build_batch([record], base_offset=offset) for offset in offsets))


def test_a_batch_whose_number_of_offsets_rotted_is_refused_and_not_skipped() -> None:
    data = stored(0, 1)
    data[LAST_OFFSET_DELTA] ^= 0x80
    with pytest.raises(MalformedMessage, match="checksum"):
        decode_changes(data, 0)


def test_batches_in_the_wrong_order_are_refused() -> None:
    """No checksum covers the base offset."""
    with pytest.raises(MalformedMessage, match="the batch at offset 1 follows offset 3"):
        decode_changes(stored(3, 1), 0)


def test_the_first_batch_may_have_been_read_before() -> None:
    changes, next_offset, unreadable = decode_changes(stored(4, 5), 5)
    assert (changes, next_offset, [offset for offset, _ in unreadable]) == ([], 6, [5])


class Stage:
    """A reader of a metadata topic with one partition, whose records are decoded when the test says so."""

    def __init__(self) -> None:
        self.decoding: list[asyncio.Future[None]] = []
        topics = SimpleNamespace(partition=lambda *_: None)
        cluster = SimpleNamespace(partitions_count=lambda _: 1, image=SimpleNamespace(topics=topics))
        ports = SimpleNamespace(cluster=cluster, node_id=1, environment=self)
        self.reader = RemoteLogMetadataReader(cast("Any", ports))

    async def offload(self, work: Callable[[], T]) -> T:
        done = asyncio.get_running_loop().create_future()
        self.decoding.append(done)
        await done
        return work()

    def read(self, position: int, count: int) -> asyncio.Task[bool]:
        """Read the records of two partitions in turn, from a position on."""
        records = [
            Record(value=encode_change(KEYS[offset % 2], segment_at(offset)), timestamp=0) for offset in range(count)
        ]
        data = b"".join(
            build_batch([each], base_offset=offset) for offset, each in enumerate(records) if offset >= position
        )
        return asyncio.ensure_future(self.reader._replay_bytes(0, position, data))

    async def decoded(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)
            while self.decoding:
                self.decoding.pop().set_result(None)


def segment_at(offset: int) -> RemoteSegment:
    start = 10 * offset
    return RemoteSegment(bytes([*bytes(15), offset]), start, start + 9, 1, 0, 0, (EpochStart(0, start),), 100)


def held(followed: FollowedRemoteLog | None) -> tuple[int, int]:
    """The next offset of a remote log, and the number of its segments."""
    assert followed is not None
    return followed.next_offset, len(followed.remote_log)


def test_a_partition_that_is_followed_while_records_are_decoded_gets_all_of_them() -> None:
    """The position goes back to the start, and what was being decoded does not move it past the records that the
    partition lacks.
    """

    async def story() -> None:
        stage = Stage()
        first = stage.reader.follow(KEYS[0])
        early = stage.read(0, 4)
        await stage.decoded()
        assert await early and held(first) == (4, 2)
        late = stage.read(4, 8)
        await asyncio.sleep(0)
        second = stage.reader.follow(KEYS[1])
        await stage.decoded()
        assert await late
        assert (stage.reader._positions[0], held(first), held(second)) == (0, (4, 2), (0, 0))
        anew = stage.read(0, 8)
        await stage.decoded()
        assert await anew
        assert (stage.reader._positions[0], held(first), held(second)) == (8, (8, 4), (8, 4))

    asyncio.run(story())


def test_a_remote_log_holds_everything_only_where_it_has_read_to_the_end() -> None:
    async def story() -> None:
        stage = Stage()
        first = stage.reader.follow(KEYS[0])
        assert first is not None
        reading = stage.read(0, 4)
        await stage.decoded()
        await reading
        stage.reader._reached(0, 5)
        assert not first.is_complete
        second = stage.reader.follow(KEYS[1])
        assert second is not None
        stage.reader._reached(0, 4)
        assert first.is_complete and not second.is_complete

    asyncio.run(story())
