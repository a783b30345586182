"""Reads and writes the topic `__remote_log_metadata` for the tiered partitions of this broker.

    partition of the metadata topic that this broker leads   ──▶ its committed records, from the local log
    led by another broker                                    ──▶ Fetch over a peer channel, all of one leader together

The reader reads the metadata partitions that this broker leads, and those with records of a followed partition. When
another partition is followed, the reader reads its metadata partition from offset 0 again; the remote logs that were
followed before skip the records that they have replayed. Decoding runs in an executor thread; the replay runs on the
event loop, in the order of the records.

A write appends to the local log, or sends Produce to the leader of the metadata partition. A record counts as written
when the reader has read it back as committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from moldau.broker.config.internal_topics import REMOTE_LOG_METADATA_TOPIC
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.other_brokers import OtherBrokers
from moldau.broker.network.peer_channel import NoResponseReason, PeerChannel
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.tasks import Spawn
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import crc_is_valid
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.replication.partition import ACKS_ALL, HighWatermarkListener, Partition
from moldau.storage.tiered.metadata.records import RemoteChange, decode_change, encode_change, metadata_partition
from moldau.storage.tiered.metadata.remote_segment import PartitionDelete, PartitionDeleteState, RemotePartition

log = logging.getLogger("moldau.tiering")

READ_PURPOSE: Final = "remote log metadata, read"
READ_SIZE: Final = 1 << 20
FETCH_WAIT_MS: Final = 500
FETCH_TIMEOUT_MS: Final = 10_000
RETRY_S: Final = 0.5
LOCAL_WAIT_S: Final = 0.5
"""The interval (seconds) at which the reader of local metadata partitions looks again, even if no high watermark has
moved: leaders may have changed.
"""
WRITE_PURPOSE: Final = "remote log metadata, write"
ATTEMPT_S: Final = 5.0
"""The time (seconds) within which an appended record must be read back. After that the append is tried again."""
ATTEMPT_COUNT_MAX: Final = 6


class ReadChange(NamedTuple):
    """A decoded record of the metadata topic: the change of a remote log, with the record's offset and value."""

    offset: int
    value: bytes
    partition: RemotePartition | None
    change: RemoteChange


class RemoteLogMetadataPorts(NamedTuple):
    """The parts of the broker that the reader and the writer of `__remote_log_metadata` need."""

    node_id: int
    environment: Environment
    spawn: Spawn
    cluster: ClusterView
    brokers: OtherBrokers
    replicas: Replicas


class RemoteLogMetadataReader:
    """Reads `__remote_log_metadata` for the partitions that are followed. Its methods are called on the event loop."""

    def __init__(self, ports: RemoteLogMetadataPorts) -> None:
        self._ports = ports
        self._followed: dict[RemotePartition, FollowedRemoteLog] = {}
        self._positions: dict[int, int] = {}
        """The offset of the next record to read, for each partition of the metadata topic that is read."""
        self._sources: dict[int, None] = {}
        """The brokers from which tasks read now, by id: the leaders of metadata partitions."""
        self._expected: dict[bytes, asyncio.Future[None]] = {}
        """For the encoded value of each record that was written, the future that completes when that record is read."""
        self._moved = asyncio.Event()
        self._listened: dict[int, Partition] = {}
        self.marked: dict[RemotePartition, PartitionDelete] = {}
        """The partitions whose removal from remote storage has begun and is not finished, as far as this broker reads
        their metadata.
        """
        self.unreadable_count = 0
        """The number of records that were skipped because this version cannot decode them."""

    def __iter__(self) -> Iterator[FollowedRemoteLog]:
        return iter(tuple(self._followed.values()))

    @property
    def partition_count(self) -> int | None:
        """The number of partitions of the metadata topic; None while it does not exist."""
        return self._ports.cluster.partitions_count(REMOTE_LOG_METADATA_TOPIC)

    def get(self, key: RemotePartition) -> FollowedRemoteLog | None:
        return self._followed.get(key)

    def follow(self, key: RemotePartition) -> FollowedRemoteLog | None:
        """Read the remote log metadata of a partition from now on. Returns its remote log; None while the metadata
        topic does not exist.
        """
        followed, count = self._followed.get(key), self.partition_count
        if followed is None and count:
            followed = self._followed[key] = FollowedRemoteLog(key, metadata_partition(key, count))
            self._moved.set()
            self._positions[followed.metadata_index] = 0
            self.look_for_leaders()
        return followed

    def unfollow(self, key: RemotePartition) -> None:
        """Forget the remote log of a partition, because this broker does not follow it any more."""
        followed = self._followed.pop(key, None)
        if followed is None:
            return
        index = followed.metadata_index
        is_led = self.leader_of(index) == self._ports.node_id
        if not is_led and all(other.metadata_index != index for other in self._followed.values()):
            self._positions.pop(index, None)

    def expect(self, value: bytes) -> asyncio.Future[None]:
        """A future that completes when a record with this value is replayed, which happens after its commit."""
        return self._expected.setdefault(value, asyncio.get_running_loop().create_future())

    def expect_no_more(self, value: bytes) -> None:
        self._expected.pop(value, None)

    def leader_of(self, index: int) -> int:
        """The id of the broker that leads a partition of the metadata topic; -1 if the partition has no leader."""
        found = self._ports.cluster.image.topics.partition(REMOTE_LOG_METADATA_TOPIC, index)
        return -1 if found is None else found.leader

    # Reading

    def look_for_leaders(self) -> None:
        """Begin a reading task for each broker that leads a metadata partition and has none yet, because leaders may
        have changed.

        The metadata partitions that this broker leads are always read, because it continues removals that other brokers
        have left unfinished.
        """
        for index in range(self.partition_count or 0):
            if self.leader_of(index) == self._ports.node_id:
                self._positions.setdefault(index, 0)
        for index in self._positions:
            leader_id = self.leader_of(index)
            if leader_id >= 0 and leader_id not in self._sources:
                self._sources[leader_id] = None
                run = self._read_local if leader_id == self._ports.node_id else self._read_remote
                self._ports.spawn(run(leader_id), f"remote-log-metadata-{leader_id}")

    def _led_by(self, leader_id: int) -> list[int]:
        return [index for index in self._positions if self.leader_of(index) == leader_id]

    async def _read_local(self, node_id: int) -> None:
        while indexes := self._led_by(node_id):
            self._moved.clear()
            for index in indexes:
                partition = self._ports.replicas.get(REMOTE_LOG_METADATA_TOPIC, index)
                if partition is not None and partition.is_leader:
                    self._listen(index, partition)
                    await self._read_partition(index, partition)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOCAL_WAIT_S):
                    await self._moved.wait()
        self._sources.pop(node_id)

    def _listen(self, index: int, partition: Partition) -> None:
        if self._listened.get(index) is not partition:
            self._listened[index] = partition
            partition.add_listener(HighWatermarkListener(self._moved.set))

    async def _read_partition(self, index: int, partition: Partition) -> None:
        """Read all committed records of a metadata partition that this broker leads."""
        while (position := self._positions.get(index)) is not None and partition.is_leader:
            leadership, end_offset = partition.leadership, partition.high_watermark
            position = self._positions[index] = max(position, partition.log.log_start_offset)
            if position >= end_offset:
                # A new leader's high watermark may be below records that are committed, until it has passed the start
                # of its epoch.
                if leadership is not None and end_offset >= leadership.epoch_start_offset:
                    self._reached(index, end_offset)
                return
            read = partition.log.read(position, READ_SIZE, end_offset=end_offset, at_least_one=True)
            if isinstance(read, ErrorCode) or read.slice is None:
                return
            try:
                data = await self._ports.environment.offload(read.slice.read)
            except OSError as error:
                log.error("the remote log metadata cannot be read: %s", error)
                return
            if not await self._replay_bytes(index, position, data):
                return
            # The end before the read counts: while records come faster than an executor thread decodes them, the reader
            # never stands at the end of the log.
            if leadership is not None and end_offset >= leadership.epoch_start_offset:
                self._reached(index, end_offset)

    async def _read_remote(self, leader_id: int) -> None:
        while indexes := self._led_by(leader_id):
            asked = {index: self._positions[index] for index in indexes}
            response = await self._fetch(leader_id, asked)
            is_served = False
            for topic in response.responses if response is not None else ():
                for data in topic.partitions:
                    is_served |= await self._fetched(data, asked[data.partition_index])
            if not is_served:
                await asyncio.sleep(RETRY_S)
        self._sources.pop(leader_id)

    async def _fetched(self, data: PartitionData, position: int) -> bool:
        """Replay the records that were fetched from `position` of a metadata partition. Returns whether the leader
        served the partition.
        """
        index = data.partition_index
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._positions.get(index) == position:
            log.error("%s-%d does not hold offset %d any more", REMOTE_LOG_METADATA_TOPIC, index, position)
            self._positions[index] = max(position, data.log_start_offset)
        if data.error_code != ErrorCode.NONE:
            return False
        if self._positions.get(index) != position:
            return True  # Another partition was followed in the meantime, and the reader begins anew.
        records = data.records
        assert records is None or isinstance(records, bytes | memoryview)
        if records and not await self._replay_bytes(index, position, records):
            return False
        self._reached(index, data.high_watermark)
        return True

    async def _fetch(self, leader_id: int, asked: dict[int, int]) -> FetchResponse | None:
        ports = self._ports
        channel = ports.brokers.channel(leader_id, READ_PURPOSE)
        topic = ports.cluster.image.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
        if channel is None or topic is None:
            return None
        wanted = [
            FetchPartition(partition=index, fetch_offset=position, partition_max_bytes=READ_SIZE)
            for index, position in asked.items()
        ]
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=4 * READ_SIZE,
            topics=[FetchTopic(topic=REMOTE_LOG_METADATA_TOPIC, topic_id=topic.id, partitions=wanted)],
        )
        response = await send_and_wait(channel, request, FETCH_TIMEOUT_MS)
        assert response is None or isinstance(response, FetchResponse)
        return response

    # Replaying

    async def _replay_bytes(self, index: int, position: int, data: BytesLike) -> bool:
        """Decode and replay the bytes that were read at `position` of a metadata partition. Returns whether the reader
        has advanced.
        """
        try:
            read, next_offset, unreadable = await self._ports.environment.offload(
                lambda: decode_changes(data, position)
            )
        except MalformedMessage as malformed:
            log.error("%s-%d is damaged at offset %d: %s", REMOTE_LOG_METADATA_TOPIC, index, position, malformed)
            return False
        if self._positions.get(index) != position:
            return True  # Another partition was followed in the meantime, and the reader begins anew.
        for offset, reason in unreadable:
            self.unreadable_count += 1
            log.error("%s-%d: the record at offset %d: %s", REMOTE_LOG_METADATA_TOPIC, index, offset, reason)
        for each in read:
            self._replay(each)
        self._positions[index] = next_offset
        for followed in self._followed.values():
            if followed.metadata_index == index:
                followed.next_offset = max(followed.next_offset, next_offset)
        return next_offset > position

    def _replay(self, read: ReadChange) -> None:
        followed = self._followed.get(read.partition) if read.partition is not None else None
        if followed is not None and read.offset >= followed.next_offset:
            followed.remote_log.replay(read.change)
        if isinstance(read.change, PartitionDelete) and read.partition is not None:
            if read.change.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                self.marked.pop(read.partition, None)
            else:
                self.marked[read.partition] = read.change
        waiting = self._expected.pop(read.value, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _reached(self, index: int, end_offset: int) -> None:
        """Note that the committed records of a metadata partition end at `end_offset`. The remote logs that have
        replayed all records before it are complete.
        """
        for followed in self._followed.values():
            if followed.metadata_index == index and followed.next_offset >= end_offset:
                followed.is_complete = True


def decode_changes(data: BytesLike, position: int) -> tuple[list[ReadChange], int, list[tuple[int, str]]]:
    """Decode whole batches of the metadata topic from the offset `position` on. Returns the decoded changes, the next
    offset, and for each record that cannot be decoded its offset and the reason.

    Raises `MalformedMessage` if a batch is damaged.
    """
    changes: list[ReadChange] = []
    unreadable: list[tuple[int, str]] = []
    next_offset = position
    for place, header in iterate_batches(data):
        # First the checksum: it covers the number of offsets, by which a batch is skipped.
        if not crc_is_valid(data, place, header):
            raise MalformedMessage(f"the checksum of the batch at offset {header.base_offset} does not match")
        if header.next_offset <= next_offset:
            if place:
                raise MalformedMessage(f"the batch at offset {header.base_offset} follows offset {next_offset - 1}")
            continue  # The first batch was replayed already.
        for record in () if header.is_control else records_of(data, place, header):
            if record.offset < position or record.value is None:
                continue
            try:
                changes.append(ReadChange(record.offset, bytes(record.value), *decode_change(record.value)))
            except MalformedMessage as malformed:
                unreadable.append((record.offset, str(malformed)))
        next_offset = header.next_offset
    return changes, next_offset, unreadable


class MetadataNotWritten(Exception):
    """The record was not read back as committed. It may still be committed later."""


class RemoteLogMetadataWriter:
    """Writes records to `__remote_log_metadata`. Its methods are called on the event loop."""

    def __init__(self, ports: RemoteLogMetadataPorts, reader: RemoteLogMetadataReader, flusher: Flusher) -> None:
        self._ports = ports
        self._reader = reader
        self._flusher = flusher

    async def write(self, followed: FollowedRemoteLog, change: RemoteChange) -> None:
        """Write a change of a remote log to the metadata topic, and wait until this broker has replayed it. Raises
        `MetadataNotWritten`.
        """
        value = encode_change(followed.key, change)
        committed = self._reader.expect(value)
        try:
            for _ in range(ATTEMPT_COUNT_MAX):
                if await self._append(followed.metadata_index, value) is ErrorCode.NONE:
                    await asyncio.wait([committed], timeout=ATTEMPT_S)
                else:
                    await asyncio.wait([committed], timeout=RETRY_S)
                if committed.done():
                    return
        finally:
            self._reader.expect_no_more(value)
        raise MetadataNotWritten(
            f"{REMOTE_LOG_METADATA_TOPIC}-{followed.metadata_index} did not take a record of {followed.key.topic}-"
            f"{followed.key.partition}"
        )

    async def _append(self, index: int, value: bytes) -> ErrorCode:
        now_ms = self._ports.environment.wall_ms()
        batch = build_batch([Record(key=None, value=value, timestamp=now_ms)])
        leader_id = self._reader.leader_of(index)
        if leader_id == self._ports.node_id:
            partition = self._ports.replicas.get(REMOTE_LOG_METADATA_TOPIC, index)
            if partition is None:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            error = partition.append_internal(batch, now_ms).error
            if partition.awaits_flush:
                self._flusher.flush(partition.log)
            return error
        return await self._produce(leader_id, index, batch)

    async def _produce(self, leader_id: int, index: int, batch: bytes) -> ErrorCode:
        ports = self._ports
        channel = ports.brokers.channel(leader_id, WRITE_PURPOSE)
        topic = ports.cluster.image.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
        if channel is None or topic is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        data = TopicProduceData(
            name=REMOTE_LOG_METADATA_TOPIC,
            topic_id=topic.id,
            partition_data=[PartitionProduceData(index=index, records=batch)],
        )
        timeout_ms = round(ATTEMPT_S * 1000)
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=timeout_ms, topic_data=[data])
        response = await send_and_wait(channel, request, 2 * timeout_ms)
        if response is None:
            return ErrorCode.NETWORK_EXCEPTION
        assert isinstance(response, ProduceResponse)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)


async def send_and_wait(channel: PeerChannel, request: object, timeout_ms: int) -> object | None:
    """Send a request and wait for its response. Returns None if there is no response.

    Records in the response are copied, because the channel reuses their memory.
    """
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def on_response(response: object) -> None:
        if not answered.done():
            _copy_records(response)
            answered.set_result(response)

    channel.ask(request, on_response, timeout_ms)
    response = await answered
    return None if isinstance(response, NoResponseReason) else response


def _copy_records(response: object) -> None:
    if isinstance(response, FetchResponse):
        for topic in response.responses:
            for data in topic.partitions:
                if isinstance(data.records, memoryview):
                    data.records = bytes(data.records)
