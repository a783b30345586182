"""I10: the metadata makes sense by itself: nothing in it speaks of what is not there."""

from __future__ import annotations

from moldau.kraft.controller.view import MIN_INSYNC_REPLICAS_CONFIG
from moldau.kraft.features import ELIGIBLE_LEADER_REPLICAS
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import PartitionRegistration as Assigned
from moldau.kraft.image.topics import Topic
from tests.simulation.invariants.observation import Observation, Violation


class SoundImage:
    def __init__(self) -> None:
        self._end_offset = -1

    def check(self, seen: Observation) -> None:
        image = seen.image
        if image.provenance.end_offset == self._end_offset:
            return
        self._end_offset = image.provenance.end_offset
        self._check_names(image)
        default = seen.nodes[0].broker.config.integer(MIN_INSYNC_REPLICAS_CONFIG) if seen.nodes else None
        has_eligible = image.features.levels.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0
        for topic in image.topics.by_id.values():
            needed = min_in_sync(image, topic, default) if has_eligible else None
            for index, assigned in topic.partitions.items():
                self._check_partition(f"{topic.name}-{index}", assigned, needed, has_eligible=has_eligible)

    @staticmethod
    def _check_names(image: MetadataImage) -> None:
        topics = image.topics
        named = {name: topics.by_id.get(topic_id) for name, topic_id in topics.ids.items()}
        if any(topic is None or topic.name != name for name, topic in named.items()):
            raise Violation(f"topics are known by name that do not exist: {sorted(named)}")
        if len(named) != sum(1 for _ in topics.by_id.values()):
            raise Violation("there are topics without a name")
        for topic in topics.by_id.values():
            if {*topic.partitions} != {*range(len(topic.partitions))}:
                raise Violation(f"{topic.name} has the partitions {sorted(topic.partitions)}")
        for resource, _ in image.configs.by_resource.items():
            if resource.type == ResourceType.TOPIC and resource.name not in named:
                raise Violation(f"there are settings of {resource.name}, which does not exist")
        for broker in image.cluster.brokers.values():
            if not 0 <= broker.epoch < image.provenance.end_offset:
                raise Violation(f"broker {broker.id} has an epoch that has not come yet: {broker.epoch}")

    @staticmethod
    def _check_partition(name: str, assigned: Assigned, needed: int | None, *, has_eligible: bool) -> None:
        replicas = set(assigned.replicas)
        if len(replicas) != len(assigned.replicas) or len(set(assigned.isr)) != len(assigned.isr):
            raise Violation(f"{name} names a replica twice: {assigned}")
        if not replicas or not {*assigned.adding_replicas, *assigned.removing_replicas} <= replicas:
            raise Violation(f"{name} adds or removes who is no replica: {assigned}")
        if len(assigned.directories) not in (0, len(assigned.replicas)):
            raise Violation(f"{name} has not one directory for each replica: {assigned}")
        if not assigned.isr and not has_eligible:
            raise Violation(f"{name} has nobody in sync: {assigned}")
        if assigned.eligible_leader_replicas and (needed is None or len(assigned.isr) >= min(needed, len(replicas))):
            raise Violation(f"{name} has eligible leaders beside enough in sync: {assigned}")


def min_in_sync(image: MetadataImage, topic: Topic, default: int | None) -> int | None:
    """What the metadata says for this topic, else for all, else the configuration of the nodes."""
    own = image.configs.settings_of(ResourceType.TOPIC, topic.name).get(MIN_INSYNC_REPLICAS_CONFIG)
    text = (
        own if own is not None else image.configs.settings_of(ResourceType.BROKER, "").get(MIN_INSYNC_REPLICAS_CONFIG)
    )
    return default if text is None else int(text)
