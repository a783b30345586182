"""Asks the leader of a partition, this broker or another one, for the latest offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.other_brokers import OtherBrokers
from moldau.broker.network.peer_channel import NoResponseReason
from moldau.broker.replicas.replicas import Replicas
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

PURPOSE: Final = "latest offsets"
LATEST: Final = -1
CONSUMER: Final = -1
Answered: TypeAlias = Callable[[int | ErrorCode], None]


class LatestOffsets:
    """Asks the leaders of partitions for the latest offsets."""

    def __init__(self, node_id: int, cluster: ClusterView, brokers: OtherBrokers, replicas: Replicas) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._brokers = brokers
        self._replicas = replicas

    def ask(self, topic: str, index: int, answered: Answered) -> None:
        """Get the high watermark of a partition from its leader. `answered` is called with the offset or the error,
        before this returns or later.
        """
        partition = self._cluster.image.topics.partition(topic, index)
        local = self._replicas.get(topic, index)
        if partition is None:
            answered(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif partition.leader == self._node_id:
            answered(self._replicas.error_of(topic, index) if local is None else local.high_watermark)
        else:
            self._ask_broker(partition.leader, topic, index, answered)

    def _ask_broker(self, broker_id: int, topic: str, index: int, answered: Answered) -> None:
        wanted = ListOffsetsPartition(partition_index=index, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=CONSUMER, isolation_level=0, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )

        def replied(response: object) -> None:
            if isinstance(response, NoResponseReason):
                is_unknown = response is NoResponseReason.NO_ADDRESS
                answered(ErrorCode.LEADER_NOT_AVAILABLE if is_unknown else ErrorCode.NETWORK_EXCEPTION)
                return
            assert isinstance(response, ListOffsetsResponse)
            found = response.topics[0].partitions[0]
            answered(ErrorCode(found.error_code) if found.error_code else found.offset)

        self._brokers.ask(broker_id, PURPOSE, request, replied)
