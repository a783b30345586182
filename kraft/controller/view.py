"""What decisions about partitions read: the metadata image, its partition index and the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from moldau.kraft.controller.partition_index import Key, PartitionIndex
from moldau.kraft.controller.settings import ControllerSettings
from moldau.kraft.features import ELIGIBLE_LEADER_REPLICAS
from moldau.kraft.image.cluster import UNASSIGNED_DIRECTORY
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import PartitionRegistration, Topic
from moldau.protocol.late_tuple import NamedTuple

MIN_INSYNC_REPLICAS_CONFIG: Final = "min.insync.replicas"
UNCLEAN_ELECTION_CONFIG: Final = "unclean.leader.election.enable"
DEFAULT_RESOURCE_NAME: Final = ""


class ControllerView(NamedTuple):
    """A metadata image and its partition index, both at the same offset, with the controller's settings."""

    image: MetadataImage
    by_broker: PartitionIndex
    settings: ControllerSettings

    def partitions(self, keys: Iterable[Key]) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
        """Yield the topic, the index and the state of the partitions with these keys."""
        by_id = self.image.topics.by_id
        for topic_id, partition_id in keys:
            topic = by_id[topic_id]
            yield topic, partition_id, topic.partitions[partition_id]

    @property
    def has_eligible_replicas(self) -> bool:
        """Whether the cluster has eligible leader replicas (KIP-966)."""
        return self.image.features.levels.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0

    def setting_of(self, topic_name: str, name: str) -> str | None:
        """The dynamic value of a topic's setting, or the cluster-wide dynamic value if the topic has none; None if
        neither exists."""
        configs = self.image.configs
        own = configs.settings_of(ResourceType.TOPIC, topic_name).get(name)
        return own if own is not None else configs.settings_of(ResourceType.BROKER, DEFAULT_RESOURCE_NAME).get(name)

    def min_in_sync(self, topic: Topic) -> int:
        """min.insync.replicas of a topic, limited to the number of replicas of its partitions."""
        text = self.setting_of(topic.name, MIN_INSYNC_REPLICAS_CONFIG)
        wanted = self.settings.min_insync_replicas if text is None else int(text)
        return min(wanted, len(topic.partitions[0].replicas)) if 0 in topic.partitions else wanted

    def allows_unclean(self, topic_name: str) -> bool:
        """Whether unclean elections are allowed for the topic: a replica that is not in sync may be elected if no
        in-sync replica can lead."""
        text = self.setting_of(topic_name, UNCLEAN_ELECTION_CONFIG)
        # Settings are stored as they were written: also True is a boolean.
        return self.settings.unclean_leader_election_enable if text is None else text.strip().lower() == "true"

    def default_directory(self, broker_id: int) -> bytes:
        """The id of the log directory to which a new replica on a broker is assigned.

        It is the broker's only directory. If the broker has several it is `UNASSIGNED_DIRECTORY`, and the broker
        chooses.
        """
        broker = self.image.cluster.brokers.get(broker_id)
        directories = () if broker is None else broker.directories
        return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY

    def eligibility_of(self, partition: PartitionRegistration) -> Callable[[int], bool]:
        """Return a function that tells whether the replica on a broker may lead the partition: the broker must be
        active, and the directory of the replica online."""
        cluster = self.image.cluster

        def may_lead(replica: int) -> bool:
            broker = cluster.brokers.get(replica)
            return (
                broker is not None and broker.is_active and broker.has_online_directory(partition.directory_of(replica))
            )

        return may_lead
