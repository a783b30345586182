"""The metadata of a running cluster, fetched from the leader of its controller quorum as an observer does: the newest
metadata snapshot, and the committed log after it (KIP-595, KIP-630).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from moldau.backup.sources.metadata_log import ReplayedMetadata
from moldau.kraft.raft.member import METADATA_TOPIC, METADATA_TOPIC_ID
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ResponsePartitionData,
    TopicData,
)
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from moldau.protocol.messages.fetch import PartitionData as FetchedPartition
from moldau.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    TopicSnapshot,
)
from moldau.protocol.messages.fetch_snapshot import SnapshotId as WireSnapshotId
from moldau.protocol.primitives import MalformedMessage
from moldau.tables.client.cluster import Cluster, TransientError, check_error
from moldau.tables.client.connection import BrokerConnection, Disconnected
from moldau.tables.client.settings import Address, ConnectionSettings
from moldau.tables.refusals import Refused

FETCH_SIZE: Final = 8 << 20
FETCH_VERSION: Final = 17
"""The version of Fetch that is used: later versions are for replicas."""
FETCH_WAIT_MS_MAX: Final = 500
NOT_LEADER_ERRORS: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.SNAPSHOT_NOT_FOUND,
    }
)
"""The errors of a node that does not lead the quorum; the client then looks for the leader again."""


class QuorumLeader(NamedTuple):
    """The leader of the quorum, and the end offset of its committed log."""

    address: Address
    epoch: int
    end_offset: int


class QuorumClient:
    """Fetches the metadata of a cluster from its controller quorum. Only one thread may use it."""

    def __init__(self, cluster: Cluster, controllers: Sequence[Address]) -> None:
        """`controllers`: addresses of listeners of controllers. If it is empty, the brokers are asked for the address
        of the quorum's leader."""
        self._cluster = cluster
        self._controllers = controllers

    def fetch_metadata(self) -> ReplayedMetadata:
        """Fetch the metadata up to the present high watermark of the quorum. Raises `Refused` and
        `MalformedMessage`.
        """
        return self._cluster.retry("the metadata of the cluster", self._fetch_all)

    def _fetch_all(self) -> ReplayedMetadata:
        leader = self._from_controllers() if self._controllers else self._from_brokers()
        connection = _connected(leader.address, self._cluster.settings)
        try:
            return _LeaderLog(connection, leader, self._cluster.cluster_id).read()
        finally:
            connection.close()

    def _from_brokers(self) -> QuorumLeader:
        reply = _described(self._cluster.any_connection())
        state = _state_of(reply)
        for node in reply.nodes:
            if node.node_id == state.leader_id and node.listeners:
                address = Address(node.listeners[0].host, node.listeners[0].port)
                return QuorumLeader(address, state.leader_epoch, state.high_watermark)
        raise Refused("the brokers do not say at which address the controllers listen: --bootstrap-controller names it")

    def _from_controllers(self) -> QuorumLeader:
        problem: Exception = TransientError("no controller answers")
        for address in self._controllers:
            try:
                connection = _connected(address, self._cluster.settings)
                try:
                    state = _state_of(_described(connection))
                finally:
                    connection.close()
                return QuorumLeader(address, state.leader_epoch, state.high_watermark)
            except (TransientError, Disconnected) as failed:
                problem = failed
        raise problem


class _LeaderLog:
    """Fetches the metadata log of the quorum's leader over one connection."""

    def __init__(self, connection: BrokerConnection, leader: QuorumLeader, cluster_id: str | None) -> None:
        self._connection = connection
        self._leader = leader
        self._cluster_id = cluster_id

    def read(self) -> ReplayedMetadata:
        """Fetch the metadata up to the end of the leader's committed log. Raises `TransientError` if the node no longer
        leads.
        """
        metadata, epoch = ReplayedMetadata(), 0
        while metadata.end_offset < self._leader.end_offset:
            answer = self._fetch(metadata.end_offset, epoch)
            snapshot = answer.snapshot_id
            if snapshot is not None and snapshot.end_offset >= 0:
                metadata = self._snapshot(SnapshotId(snapshot.end_offset, snapshot.epoch))
            elif answer.diverging_epoch is not None and answer.diverging_epoch.end_offset >= 0:
                raise TransientError("the metadata log has another history now")
            elif isinstance(answer.records, bytes | bytearray | memoryview):
                metadata.replay(answer.records, self._leader.end_offset)
            epoch = metadata.epoch
        return metadata

    def _fetch(self, offset: int, last_epoch: int) -> FetchedPartition:
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=self._leader.epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=FETCH_SIZE,
        )
        request = FetchRequest(
            cluster_id=self._cluster_id,
            replica_state=ReplicaState(),
            max_wait_ms=FETCH_WAIT_MS_MAX,
            min_bytes=0,
            max_bytes=FETCH_SIZE,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, topic=METADATA_TOPIC, partitions=[partition])],
        )
        reply = self._connection.ask(request, FetchResponse, FETCH_VERSION, wait_ms=FETCH_WAIT_MS_MAX)
        _check(reply.error_code)
        answer = reply.responses[0].partitions[0]
        _check(answer.error_code)
        return answer

    def _snapshot(self, snapshot: SnapshotId) -> ReplayedMetadata:
        parts, position, size = list[bytes](), 0, 1
        while position < size:
            wanted = PartitionSnapshot(
                partition=0,
                current_leader_epoch=self._leader.epoch,
                snapshot_id=WireSnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
                position=position,
            )
            request = FetchSnapshotRequest(
                cluster_id=self._cluster_id,
                max_bytes=FETCH_SIZE,
                topics=[TopicSnapshot(name=METADATA_TOPIC, partitions=[wanted])],
            )
            reply = self._connection.ask(request, FetchSnapshotResponse, 0)
            _check(reply.error_code)
            answer = reply.topics[0].partitions[0]
            _check(answer.error_code)
            part = answer.unaligned_records
            if not isinstance(part, bytes | bytearray | memoryview) or not part or answer.position != position:
                raise MalformedMessage(f"{self._connection.address}: a part of a snapshot that was not asked for")
            parts.append(bytes(part))
            position, size = position + len(part), answer.size
        return ReplayedMetadata(snapshot, b"".join(parts))


def _described(connection: BrokerConnection) -> DescribeQuorumResponse:
    topic = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
    reply = connection.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, 2)
    _check(reply.error_code)
    return reply


def _state_of(reply: DescribeQuorumResponse) -> ResponsePartitionData:
    state = reply.topics[0].partitions[0]
    _check(state.error_code)
    if state.high_watermark < 0:
        raise TransientError("the leader of the quorum has committed nothing yet")
    return state


def _check(code: int) -> None:
    if code in NOT_LEADER_ERRORS:
        raise TransientError(f"the quorum: {ErrorCode(code).name}")
    check_error(code, "the metadata of the cluster")


def _connected(address: Address, settings: ConnectionSettings) -> BrokerConnection:
    try:
        return BrokerConnection(address, settings)
    except Disconnected as problem:
        raise Disconnected(
            f"controller {problem}: --bootstrap-controller names a listener that can be reached"
        ) from None
