"""Who leads instead: what a refused Produce or Fetch says, so that clients need no metadata to go on (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kraft.image.topics import NO_LEADER
from protocol.errors import ErrorCode
from protocol.messages import fetch, produce

if TYPE_CHECKING:
    from broker.metadata.cluster_view import ClusterView, NodeAddress
    from broker.network.route import RequestContext
    from broker.replicas.replicas import Replicas

FIRST_PRODUCE_VERSION: Final = 10
FIRST_FETCH_VERSION: Final = 16
NO_EPOCH: Final = -1


class LeaderSources(Protocol):
    """Where leaders and their addresses are looked up."""

    @property
    def replicas(self) -> Replicas: ...

    @property
    def cluster(self) -> ClusterView: ...


class Leader(NamedTuple):
    """-1 where nobody leads, or the partition is not known."""

    id: int
    epoch: int


def hint_produce(sources: LeaderSources, context: RequestContext, response: produce.ProduceResponse) -> None:
    """Fill the hints into a response that has refusals."""
    if context.version < FIRST_PRODUCE_VERSION:
        return
    leaders = []
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader = leader_of(sources, (topic.name or topic.topic_id, answer.index))
                answer.current_leader = produce.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
                leaders.append(leader)
    response.node_endpoints = [
        produce.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in nodes_of(sources, context, leaders)
    ]


def hint_fetch(sources: LeaderSources, context: RequestContext, response: fetch.FetchResponse) -> None:
    """The same for a fetch, whose topics travel by id."""
    leaders = []
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
                leader = leader_of(sources, (topic.topic_id, data.partition_index))
                data.current_leader = fetch.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
                leaders.append(leader)
    if leaders:
        response.node_endpoints = [
            fetch.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes_of(sources, context, leaders)
        ]


def leader_of(sources: LeaderSources, key: tuple[str | bytes, int]) -> Leader:
    """As this replica knows it; where there is none here, as the metadata does."""
    partition = sources.replicas.find(key)
    if partition is not None:
        return Leader(partition.leader_id, partition.leader_epoch)
    name, index = key
    topics = sources.cluster.image.topics
    topic = topics.by_name(name) if isinstance(name, str) else topics.by_id.get(name)
    assigned = topic.partitions.get(index) if topic is not None else None
    return Leader(assigned.leader, assigned.leader_epoch) if assigned is not None else Leader(NO_LEADER, NO_EPOCH)


def nodes_of(sources: LeaderSources, context: RequestContext, leaders: list[Leader]) -> Iterator[NodeAddress]:
    """Where the client reaches them, each once: by the listener through which it came."""
    wanted = {leader.id for leader in leaders}
    return (node for node in sources.cluster.live_nodes(context.listener.name) if node.id in wanted)
