"""The metadata of a restored cluster: the metadata of the backup, with nodes that have not registered yet.

Topics keep their ids; settings, permissions, users, quotas and feature levels stay. Every replica of a partition has
the same log, so all replicas are in sync and none leads. The controller elects a leader once one of them has
registered.

Each broker has a registration that is fenced, in the epoch -1. A node without a file of a clean shutdown names this
epoch as its former one, and so counts as a node that lost nothing. A broker that a controller does not know counts as a
node that may have lost records, and with eligible leader replicas (KIP-966) it leaves the in-sync replicas: no
partition would get a leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.kraft.features import SUPPORTED_FEATURES
from moldau.kraft.image.cluster import Broker, ClusterImage
from moldau.kraft.image.configs import ConfigResource, ConfigsImage, ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import NO_LEADER, PartitionRegistration, Topic, TopicsImage
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.voter_set import Address, VoterNode, VoterSet
from moldau.protocol.schema import ZERO_UUID

UNKNOWN_EPOCH: Final = -1
"""The broker epoch that a node names as its former one if it has no file of a clean shutdown."""
MIN_IN_SYNC: Final = "min.insync.replicas"
DYNAMIC_QUORUM: Final = 1
"""The first kraft.version with which records name the voters of the quorum."""
DEFAULT_LISTENER: Final = "CONTROLLER"
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Placement:
    """The topics that a restore writes, and the nodes that get them."""

    single_node: int | None = None
    """The node that gets one replica of every partition. If it is None, the restored cluster has the nodes of the
    backup."""
    topics: frozenset[str] | None = None
    """The names in the backup of the topics to restore; None for all topics."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """The new names of renamed topics, by their names in the backup."""
    voters: Mapping[int, Address] = field(default_factory=dict)
    """The new addresses of controllers, by node id. The other controllers keep their addresses."""

    def name_of(self, topic: str) -> str:
        return self.renames.get(topic, topic)

    def includes_topic(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics


def nodes_of(image: MetadataImage, quorum: QuorumDescription, placement: Placement) -> list[int]:
    """The ids of the nodes of the restored cluster: the nodes that registered, vote or have a replica."""
    if placement.single_node is not None:
        return [placement.single_node]
    voters = quorum.voters.ids if quorum.voters is not None else ()
    return sorted({*_brokers_of(image, placement), *image.cluster.controllers, *voters})


def _brokers_of(image: MetadataImage, placement: Placement) -> list[int]:
    """The ids of the brokers of the restored cluster: the nodes that registered as brokers or have a replica."""
    if placement.single_node is not None:
        return [placement.single_node]
    brokers = {*image.cluster.brokers}
    brokers.update(
        replica
        for topic, _, partition in image.topics.partitions()
        if placement.includes_topic(topic.name)
        for replica in partition.replicas
    )
    return sorted(brokers)


def restored_image(
    image: MetadataImage,
    placement: Placement,
    directories: Mapping[int, bytes],
    last_epochs: Mapping[TopicPartition, int],
    next_producer_id: int,
) -> MetadataImage:
    """The metadata image of the restored cluster.

    `directories`: the id of each node's log directory. `last_epochs`: the highest leader epoch in each log, by the
    topic's name in the backup; elections may have followed the snapshot of the metadata. `next_producer_id`: a producer
    id that is higher than every id in the logs.
    """
    return image._replace(
        cluster=ClusterImage(
            {node: _restored_broker(image, node, directories[node]) for node in _brokers_of(image, placement)}
        ),
        topics=_restored_topics(image.topics, placement, directories, last_epochs),
        configs=_restored_configs(image, placement),
        next_producer_id=max(image.next_producer_id, next_producer_id),
    )


def restored_quorum(
    quorum: QuorumDescription, placement: Placement, directories: Mapping[int, bytes]
) -> QuorumDescription:
    """The quorum of the restored cluster: its voters, with the ids of their new log directories.

    With kraft.version 0 the configuration of the nodes names the voters. A single node is a quorum of its own, which no
    configuration of the old nodes names: it gets kraft.version 1.
    """
    node, known = placement.single_node, quorum.voters.by_id if quorum.voters is not None else {}
    if node is None and quorum.voters is None:
        return quorum
    kept = known if node is None else {node: known.get(node, VoterNode(node))}
    listeners = dict.fromkeys(name for voter in known.values() for name, _ in voter.endpoints)
    voters = []
    for node_id, voter in kept.items():
        endpoints, address = voter.endpoints, placement.voters.get(node_id)
        if address is not None:
            endpoints = tuple((name, address) for name in listeners or [DEFAULT_LISTENER])
        voters.append(voter._replace(directory_id=directories[node_id], endpoints=endpoints))
    return QuorumDescription(max(quorum.kraft_version, DYNAMIC_QUORUM), VoterSet.from_voters(voters))


def lowered_settings(image: MetadataImage, placement: Placement) -> list[tuple[ConfigResource, str]]:
    """The settings `min.insync.replicas` above 1 that a single replica could not meet, with their values. Empty if the
    restored cluster has the nodes of the backup."""
    if placement.single_node is None:
        return []
    return [
        (resource, settings[MIN_IN_SYNC])
        for resource, settings in image.configs.by_resource.items()
        if settings.get(MIN_IN_SYNC, "1") != "1"
        and (resource.type != ResourceType.TOPIC or placement.includes_topic(resource.name))
    ]


def _restored_broker(image: MetadataImage, node: int, directory: bytes) -> Broker:
    """The registration of a broker that has not started yet."""
    known = image.cluster.brokers.get(node)
    return Broker(
        id=node,
        epoch=UNKNOWN_EPOCH,
        incarnation_id=ZERO_UUID,
        endpoints={} if known is None else known.endpoints,
        features=SUPPORTED_FEATURES if known is None else known.features,
        rack=None if known is None else known.rack,
        fenced=True,
        in_controlled_shutdown=False,
        directories=(directory,),
        cordoned_directories=None,
    )


def _restored_topics(
    topics: TopicsImage,
    placement: Placement,
    directories: Mapping[int, bytes],
    last_epochs: Mapping[TopicPartition, int],
) -> TopicsImage:
    kept = []
    for topic in topics.by_id.values():
        if placement.includes_topic(topic.name):
            partitions = {
                index: _restored_partition(each, placement, directories, last_epochs.get((topic.name, index), -1))
                for index, each in topic.partitions.items()
            }
            kept.append(Topic(placement.name_of(topic.name), topic.id, partitions))
    return TopicsImage.from_topics(kept)


def _restored_partition(
    partition: PartitionRegistration, placement: Placement, directories: Mapping[int, bytes], last_epoch: int
) -> PartitionRegistration:
    stay = tuple(each for each in partition.replicas if each not in partition.removing_replicas) or partition.replicas
    replicas = stay if placement.single_node is None else (placement.single_node,)
    return PartitionRegistration(
        replicas=replicas,
        isr=replicas,
        leader=NO_LEADER,
        leader_epoch=max(partition.leader_epoch, last_epoch),
        partition_epoch=partition.partition_epoch + 1,
        directories=tuple(directories[each] for each in replicas),
    )


def _restored_configs(image: MetadataImage, placement: Placement) -> ConfigsImage:
    lowered = {resource for resource, _ in lowered_settings(image, placement)}
    kept = {}
    for resource, settings in image.configs.by_resource.items():
        if resource in lowered:
            settings = {**settings, MIN_IN_SYNC: "1"}
        if resource.type != ResourceType.TOPIC:
            kept[resource] = settings
        elif placement.includes_topic(resource.name):
            kept[ConfigResource(resource.type, placement.name_of(resource.name))] = settings
    return ConfigsImage(ConfigsImage().by_resource.with_changes(kept))
