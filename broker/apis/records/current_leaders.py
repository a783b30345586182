"""CurrentLeader and NodeEndpoints of refused Produce and Fetch requests: so that clients need not request Metadata
(KIP-951).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.metadata.cluster_view import NodeAddress
from moldau.kraft.image.topics import NO_LEADER
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import fetch, produce

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services

FIRST_PRODUCE_VERSION: Final = 10
FIRST_FETCH_VERSION: Final = 16
NO_EPOCH: Final = -1


class CurrentLeader(NamedTuple):
    """The leader and its epoch; both -1 if there is no leader, or the partition is not known."""

    id: int
    epoch: int


def add_to_produce(services: Services, listener_name: str, response: produce.ProduceResponse) -> None:
    """Name the current leader of each partition that was refused with NOT_LEADER_OR_FOLLOWER, and its endpoint.

    The response must be of version 10 or later.
    """
    leaders = []
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader = current_leader(services, (topic.name or topic.topic_id, answer.index))
                answer.current_leader = produce.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
                leaders.append(leader)
    response.node_endpoints = [
        produce.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in endpoints_of(services, listener_name, leaders)
    ]


def add_to_fetch(services: Services, listener_name: str, response: fetch.FetchResponse) -> None:
    """Name the current leader of each partition that was refused with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH,
    and its endpoint.

    The response must be of version 16 or later.
    """
    leaders = []
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
                leader = current_leader(services, (topic.topic_id, data.partition_index))
                data.current_leader = fetch.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
                leaders.append(leader)
    if leaders:
        response.node_endpoints = [
            fetch.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in endpoints_of(services, listener_name, leaders)
        ]


def current_leader(services: Services, key: tuple[str | bytes, int]) -> CurrentLeader:
    """The leader as this broker's replica knows it; if the broker has no replica, as the metadata says."""
    partition = services.replicas.find(key)
    if partition is not None:
        return CurrentLeader(partition.leader_id, partition.leader_epoch)
    name, index = key
    topics = services.cluster.image.topics
    topic = topics.by_name(name) if isinstance(name, str) else topics.by_id.get(name)
    assigned = topic.partitions.get(index) if topic is not None else None
    return (
        CurrentLeader(assigned.leader, assigned.leader_epoch)
        if assigned is not None
        else CurrentLeader(NO_LEADER, NO_EPOCH)
    )


def endpoints_of(services: Services, listener_name: str, leaders: list[CurrentLeader]) -> Iterator[NodeAddress]:
    """The leaders' endpoints on the listener through which the client came, each once."""
    wanted = {leader.id for leader in leaders}
    return (node for node in services.cluster.live_nodes(listener_name) if node.id in wanted)
