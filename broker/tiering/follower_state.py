"""Finds where the log of a follower starts if it ends before the leader's local log begins.

    leader: ListOffsets, earliest local        ──▶ offset and epoch where its files begin
    leader: OffsetForLeaderEpoch, epoch before ──▶ the epoch of the offset before that (`epoch_before`)
    remote log: the segment with that offset   ──▶ its leader epochs and producer snapshot, checked

With `follower.fetch.last.tiered.offset.enable` a replica that never had a record starts at the first offset that the
leader has not copied yet, instead of the first offset in the leader's files (KIP-1023).
"""

from __future__ import annotations

from typing import Final

from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.network.peer_channel import PeerChannel
from moldau.broker.replicas.replica_fetchers import NoRemoteState
from moldau.broker.tiering.opening import OpenStorage
from moldau.broker.tiering.remote_log_metadata import (
    RemoteLogMetadataPorts,
    RemoteLogMetadataReader,
    send_and_wait,
)
from moldau.broker.tiering.remote_partitions import remote_partition
from moldau.broker.tiering.traffic import RemoteCount, RemoteTraffic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.replication.partition import Partition
from moldau.storage.checkpoints.leader_epochs import EpochEnd, EpochStart
from moldau.storage.log.truncation import RemoteStart
from moldau.storage.tiered.follower_state import epoch_before, epoch_to_ask_for, read_follower_state
from moldau.storage.tiered.port import RemoteStorageError

PURPOSE: Final = "remote log state"
EARLIEST_LOCAL: Final = -4
EARLIEST_PENDING_UPLOAD: Final = -6


class FollowerState:
    """Finds the start of a follower's log for the replica fetchers, as their `RemoteState`. Its methods are called on
    the event loop.
    """

    def __init__(
        self,
        ports: RemoteLogMetadataPorts,
        settings: DynamicConfig,
        opened: OpenStorage,
        reader: RemoteLogMetadataReader,
        traffic: RemoteTraffic,
    ) -> None:
        self._ports = ports
        self._settings = settings
        self._opened = opened
        self._reader = reader
        self._traffic = traffic
        self.built = 0

    async def before_local_log(self, partition: Partition, leader_epoch: int, log_start_offset: int) -> RemoteStart:
        """Find the offset at which the follower's log must start, and the leader epochs and producer states at that
        offset. Raises `NoRemoteState`.
        """
        self._traffic.count(partition.topic, RemoteCount.BUILD_REQUESTS)
        try:
            start = await self._before_local_log(partition, leader_epoch, log_start_offset)
        except (RemoteStorageError, NoRemoteState) as error:
            self._traffic.count(partition.topic, RemoteCount.BUILD_ERRORS)
            raise NoRemoteState(str(error)) from error
        self.built += 1
        return start

    async def _before_local_log(self, partition: Partition, leader_epoch: int, log_start_offset: int) -> RemoteStart:
        ports, key = self._ports, remote_partition(partition)
        followed = self._reader.get(key)
        if followed is None or not followed.is_complete or not self._opened.is_checked:
            raise NoRemoteState("the remote log metadata is not read yet")
        channel = ports.brokers.channel(partition.leader_id, PURPOSE)
        if channel is None:
            raise NoRemoteState(f"the address of broker {partition.leader_id} is not known")
        local_start = await self._start_to_take(channel, partition, leader_epoch, log_start_offset)
        asked_epoch = epoch_to_ask_for(local_start)
        earlier = None
        if asked_epoch is not None:
            earlier = await self._epoch_end(channel, partition, leader_epoch, asked_epoch)
        epoch, offset = epoch_before(local_start, earlier), local_start.start_offset - 1
        segment = followed.remote_log.find_segment(epoch, offset)
        if segment is None:
            raise NoRemoteState(f"no remote segment has offset {offset} in leader epoch {epoch}")
        return await read_follower_state(
            self._opened.storage,
            self._opened.cluster_id,
            key,
            segment,
            epoch=epoch,
            offset=offset,
            log_start_offset=log_start_offset,
        )

    async def _start_to_take(
        self, channel: PeerChannel, partition: Partition, leader_epoch: int, log_start_offset: int
    ) -> EpochStart:
        its_log = partition.log
        is_wanted = self._settings.config.flag("follower.fetch.last.tiered.offset.enable")
        if is_wanted and not its_log.end_offset and not its_log.config.is_compacted:
            pending = await self._offset(channel, partition, leader_epoch, EARLIEST_PENDING_UPLOAD)
            if pending is not None and pending.start_offset > log_start_offset:
                return pending
        found = await self._offset(channel, partition, leader_epoch, EARLIEST_LOCAL)
        if found is None:
            raise NoRemoteState("the leader does not tell where its local log begins")
        return found

    async def _offset(
        self, channel: PeerChannel, partition: Partition, leader_epoch: int, position: int
    ) -> EpochStart | None:
        requested = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=leader_epoch, timestamp=position
        )
        request = ListOffsetsRequest(
            replica_id=self._ports.node_id,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[requested])],
        )
        response = await send_and_wait(channel, request, self._timeout_ms)
        if not isinstance(response, ListOffsetsResponse):
            return None
        answer = response.topics[0].partitions[0]
        is_told = answer.error_code == ErrorCode.NONE and answer.offset >= 0 and answer.leader_epoch >= 0
        return EpochStart(answer.leader_epoch, answer.offset) if is_told else None

    async def _epoch_end(self, channel: PeerChannel, partition: Partition, leader_epoch: int, epoch: int) -> EpochEnd:
        requested = OffsetForLeaderPartition(
            partition=partition.index, current_leader_epoch=leader_epoch, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._ports.node_id, topics=[OffsetForLeaderTopic(topic=partition.topic, partitions=[requested])]
        )
        response = await send_and_wait(channel, request, self._timeout_ms)
        if not isinstance(response, OffsetForLeaderEpochResponse):
            raise NoRemoteState(f"the leader does not answer where its epoch {epoch} ended")
        answer = response.topics[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            raise NoRemoteState(f"where epoch {epoch} ended: {ErrorCode(answer.error_code).name}")
        return EpochEnd(answer.leader_epoch, answer.end_offset)

    @property
    def _timeout_ms(self) -> int:
        return self._settings.config.integer("replica.socket.timeout.ms")
