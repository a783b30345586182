"""The metadata of a restored cluster: the metadata of the backup, with nodes that have not registered yet.

Topics keep their ids; settings, permissions, users, quotas and feature levels stay. The settings of a renamed topic,
and the permissions that name it, get its new name. A restore writes the same log for every replica of a partition, so
all replicas are in sync. No replica leads: the controller elects a leader when the broker of a replica has registered.

Each broker gets a fenced registration with the broker epoch -1. A restored node has no clean-shutdown file, so it
reports -1 as its previous broker epoch. The two epochs are equal, so the controller knows that the node has lost no
records. Without this registration the controller would suspect a loss. With eligible leader replicas (KIP-966) it would
then remove the broker from the in-sync replicas, and no partition would get a leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.kraft.features import SUPPORTED_FEATURES
from moldau.kraft.image.cluster import Broker, ClusterImage
from moldau.kraft.image.configs import ConfigResource, ConfigsImage, ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.security.acls import AclsImage
from moldau.kraft.image.topics import NO_LEADER, PartitionRegistration, Topic, TopicsImage
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.voter_set import Address, VoterNode, VoterSet
from moldau.protocol.schema import ZERO_UUID
from moldau.security.access import ResourceKind
from moldau.security.acl.bindings import PatternType

UNKNOWN_EPOCH: Final = -1
"""The previous broker epoch that a node reports when it has no clean-shutdown file."""
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
DYNAMIC_QUORUM_KRAFT_VERSION: Final = 1
"""The first kraft.version with a dynamic quorum, whose voters are stored in records."""
DEFAULT_LISTENER_NAME: Final = "CONTROLLER"
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RestorePlacement:
    """The topics that a restore writes, and the nodes on which it places them."""

    single_node: int | None = None
    """The id of the only node of the restored cluster, which gets one replica of every partition. None restores onto
    the nodes of the backup.
    """
    topics: frozenset[str] | None = None
    """The topics to restore, by their names in the backup; None for all."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """The new name of each renamed topic, by its name in the backup."""
    voters: Mapping[int, Address] = field(default_factory=dict)
    """The new addresses of controllers, by node id. A controller that is not listed keeps its address."""

    def restored_name_of(self, topic: str) -> str:
        return self.renames.get(topic, topic)

    def includes_topic(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics


def restored_node_ids(image: MetadataImage, quorum: QuorumDescription, placement: RestorePlacement) -> list[int]:
    """The ids of the nodes of the restored cluster: all registered brokers, voters and owners of a replica."""
    if placement.single_node is not None:
        return [placement.single_node]
    voters = quorum.voters.ids if quorum.voters is not None else ()
    return sorted({*_brokers_of(image, placement), *image.cluster.controllers, *voters})


def _brokers_of(image: MetadataImage, placement: RestorePlacement) -> list[int]:
    """The ids of the brokers of the restored cluster: all registered brokers and owners of a replica."""
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
    placement: RestorePlacement,
    directories: Mapping[int, bytes],
    last_epochs: Mapping[TopicPartition, int],
    next_producer_id: int,
) -> MetadataImage:
    """Make the metadata image of the restored cluster.

    `directories`: the id of each node's log directory. `last_epochs`: the highest leader epoch in each log, by the
    topic's name in the backup. It may be higher than in the metadata snapshot, because a leader was elected afterwards.
    `next_producer_id`: higher than every producer id in the logs.
    """
    return image._replace(
        cluster=ClusterImage(
            {node: _restored_broker(image, node, directories[node]) for node in _brokers_of(image, placement)}
        ),
        topics=_restored_topics(image.topics, placement, directories, last_epochs),
        configs=_restored_configs(image, placement),
        acls=_restored_acls(image.acls, placement),
        next_producer_id=max(image.next_producer_id, next_producer_id),
    )


def restored_quorum(
    quorum: QuorumDescription, placement: RestorePlacement, directories: Mapping[int, bytes]
) -> QuorumDescription:
    """Make the quorum of the restored cluster: its voters, with the ids of their new log directories.

    With kraft.version 0 nodes take the voters from their configuration. If only one node is restored, the old
    configuration does not name this new quorum, so the quorum gets kraft.version 1, which stores the voters in the log.
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
            endpoints = tuple((name, address) for name in listeners or [DEFAULT_LISTENER_NAME])
        voters.append(voter._replace(directory_id=directories[node_id], endpoints=endpoints))
    return QuorumDescription(max(quorum.kraft_version, DYNAMIC_QUORUM_KRAFT_VERSION), VoterSet.from_voters(voters))


def lowered_min_insync_settings(image: MetadataImage, placement: RestorePlacement) -> list[tuple[ConfigResource, str]]:
    """Return the `min.insync.replicas` settings above 1, with their values. A restore onto a single node lowers them to
    1. Empty if the nodes of the backup are restored.
    """
    if placement.single_node is None:
        return []
    return [
        (resource, settings[MIN_INSYNC_REPLICAS])
        for resource, settings in image.configs.by_resource.items()
        if settings.get(MIN_INSYNC_REPLICAS, "1") != "1"
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
    placement: RestorePlacement,
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
            kept.append(Topic(placement.restored_name_of(topic.name), topic.id, partitions))
    return TopicsImage.from_topics(kept)


def restored_replicas(partition: PartitionRegistration, placement: RestorePlacement) -> tuple[int, ...]:
    """Return the nodes that get a replica of a partition: without those that a reassignment removes."""
    if placement.single_node is not None:
        return (placement.single_node,)
    return tuple(each for each in partition.replicas if each not in partition.removing_replicas) or partition.replicas


def _restored_partition(
    partition: PartitionRegistration, placement: RestorePlacement, directories: Mapping[int, bytes], last_epoch: int
) -> PartitionRegistration:
    replicas = restored_replicas(partition, placement)
    return PartitionRegistration(
        replicas=replicas,
        isr=replicas,
        leader=NO_LEADER,
        leader_epoch=max(partition.leader_epoch, last_epoch),
        partition_epoch=partition.partition_epoch + 1,
        directories=tuple(directories[each] for each in replicas),
    )


def _restored_configs(image: MetadataImage, placement: RestorePlacement) -> ConfigsImage:
    lowered = {resource for resource, _ in lowered_min_insync_settings(image, placement)}
    kept = {}
    for resource, settings in image.configs.by_resource.items():
        if resource in lowered:
            settings = {**settings, MIN_INSYNC_REPLICAS: "1"}
        if resource.type != ResourceType.TOPIC:
            kept[resource] = settings
        elif placement.includes_topic(resource.name):
            kept[ConfigResource(resource.type, placement.restored_name_of(resource.name))] = settings
    return ConfigsImage(ConfigsImage().by_resource.with_changes(kept))


def _restored_acls(acls: AclsImage, placement: RestorePlacement) -> AclsImage:
    """The permissions of the restored cluster. Those that name a renamed topic get its new name."""
    renamed = {
        entry_id: binding._replace(name=placement.renames[binding.name])
        for entry_id, binding in acls.by_id.items()
        if (binding.kind, binding.pattern_type) == (ResourceKind.TOPIC, PatternType.LITERAL)
        and binding.name in placement.renames
    }
    return AclsImage(acls.by_id.with_changes(renamed))
