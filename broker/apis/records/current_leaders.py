"""Sets CurrentLeader and NodeEndpoints in the responses to refused Produce and Fetch requests, so that clients need no
Metadata request (KIP-951).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from moldau.kraft.image.topics import NO_LEADER
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import fetch, produce

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services

FIRST_PRODUCE_VERSION: Final = 10
FIRST_FETCH_VERSION: Final = 16
NO_EPOCH: Final = -1
Leader = TypeVar("Leader")
Endpoint = TypeVar("Endpoint")


class Leaders:
    """The current leaders that a response names, and their endpoints at the listener that the client uses."""

    def __init__(self, services: Services, listener_name: str) -> None:
        self._services = services
        self._listener_name = listener_name
        self._ids: set[int] = set()

    def of(self, key: tuple[str | bytes, int], make: Callable[..., Leader]) -> Leader:
        """The leader and the leader epoch of a partition. They come from this broker's replica, or else from the
        metadata. Both are -1 if there is no leader, or if the partition is not known."""
        leader_id, epoch = self._leader(key)
        self._ids.add(leader_id)
        return make(leader_id=leader_id, leader_epoch=epoch)

    def _leader(self, key: tuple[str | bytes, int]) -> tuple[int, int]:
        partition = self._services.replicas.find(key)
        if partition is not None:
            return partition.leader_id, partition.leader_epoch
        name, index = key
        topics = self._services.cluster.image.topics
        topic = topics.by_name(name) if isinstance(name, str) else topics.by_id.get(name)
        assigned = topic.partitions.get(index) if topic is not None else None
        return (NO_LEADER, NO_EPOCH) if assigned is None else (assigned.leader, assigned.leader_epoch)

    def endpoints(self, make: Callable[..., Endpoint]) -> list[Endpoint]:
        """The endpoints of all leaders that `of` has returned, without repetitions."""
        nodes = self._services.cluster.live_nodes(self._listener_name) if self._ids else ()
        return [
            make(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
            if node.id in self._ids
        ]


def add_to_produce(services: Services, listener_name: str, response: produce.ProduceResponse) -> None:
    """Add the current leader of each partition that was refused with NOT_LEADER_OR_FOLLOWER, and its endpoint, to a
    response of version 10 or later.
    """
    leaders = Leaders(services, listener_name)
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                key = (topic.name or topic.topic_id, answer.index)
                answer.current_leader = leaders.of(key, produce.LeaderIdAndEpoch)
    response.node_endpoints = leaders.endpoints(produce.NodeEndpoint)


def add_to_fetch(services: Services, listener_name: str, response: fetch.FetchResponse) -> None:
    """Add the current leader of each partition that was refused with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH, and
    its endpoint, to a response of version 16 or later.
    """
    leaders = Leaders(services, listener_name)
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
                data.current_leader = leaders.of((topic.topic_id, data.partition_index), fetch.LeaderIdAndEpoch)
    response.node_endpoints = leaders.endpoints(fetch.NodeEndpoint)
