"""Appends records to `__remote_log_metadata`, through the leader of the partition, until they are committed.

A record counts as written when this broker has read it back: it is then committed, and applied to the remote log here.
The response to the append only decides whether to try again; a record that is written twice takes effect once.
"""

from __future__ import annotations

import asyncio
from typing import Final

from moldau.broker.config.internal_topics import REMOTE_LOG_METADATA_TOPIC
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.tiering.asking import ask, channel_to
from moldau.broker.tiering.metadata_reader import MetadataPorts, MetadataReader
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.record_builder import Record, build_batch
from moldau.replication.partition import ACKS_ALL
from moldau.storage.tiered.metadata.records import RemoteChange, encode_change

PURPOSE: Final = "remote log metadata, write"
ATTEMPT_S: Final = 5.0
"""The time (seconds) in which an append must be read back; then it is tried again."""
RETRY_S: Final = 0.5
ATTEMPT_COUNT_MAX: Final = 6


class MetadataNotWritten(Exception):
    """The record was not read back as committed. It may be committed later."""


class MetadataWriter:
    """Writes records to `__remote_log_metadata`. Its methods are called on the event loop."""

    def __init__(self, ports: MetadataPorts, reader: MetadataReader, flusher: Flusher) -> None:
        self._ports = ports
        self._reader = reader
        self._flusher = flusher

    async def write(self, followed: FollowedRemoteLog, change: RemoteChange) -> None:
        """Append a change, and wait until it is replayed here. Raises `MetadataNotWritten`."""
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
        channel = channel_to(leader_id, PURPOSE, ports.cluster, ports.channels, ports.listener_name)
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
        response = await ask(channel, request, 2 * timeout_ms)
        if response is None:
            return ErrorCode.NETWORK_EXCEPTION
        assert isinstance(response, ProduceResponse)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)
