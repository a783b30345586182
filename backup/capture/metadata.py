"""The metadata of a capture: its topics with their ids and settings. Nodes, voters, users, permissions and quotas are
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from moldau.backup.sources.port import MetadataSnapshot
from moldau.kraft.image.configs import ConfigResource, ConfigsImage, ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import Topic, TopicsImage
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.snapshot.batches import snapshot_batches
from moldau.storage.log_config import INT64_MAX

OFFSETS_TOPIC: Final = "__consumer_offsets"
OMITTED_TOPIC_CONFIGS: Final = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "min.insync.replicas",
    "remote.storage.enable",
)
"""The topic settings that a capture leaves out, because they name other nodes or need storage that a test does not
have.
"""
NO_DELETION_CONFIGS: Final = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "min.compaction.lag.ms": str(INT64_MAX),
}
"""The settings with which every captured topic keeps its records. Otherwise retention and compaction would delete the
old records of a capture at once.
"""


def captured_metadata(image: MetadataImage, topics: Iterable[str], now_ms: int) -> MetadataSnapshot:
    """Make the metadata snapshot of a capture with these topics. `__consumer_offsets` gets a single partition if it is
    among them.
    """
    chosen = [topic for topic in map(image.topics.by_name, topics) if topic is not None]
    captured = MetadataImage(
        provenance=image.provenance,
        features=image.features,
        topics=TopicsImage.from_topics(
            _of_one_partition(topic) if topic.name == OFFSETS_TOPIC else topic for topic in chosen
        ),
        configs=_configs(image.configs, chosen),
        next_producer_id=image.next_producer_id,
    )
    end_offset, epoch, timestamp_ms = image.provenance
    batches = snapshot_batches(
        captured.snapshot_records(),
        QuorumDescription(),
        metadata_version=image.features.metadata_version,
        epoch=epoch,
        last_contained_ms=timestamp_ms,
        now_ms=now_ms,
    )
    return MetadataSnapshot(end_offset, epoch, b"".join(batches))


def _of_one_partition(topic: Topic) -> Topic:
    return topic._replace(partitions={0: topic.partitions[0]})


def _configs(configs: ConfigsImage, topics: Iterable[Topic]) -> ConfigsImage:
    kept = {}
    for topic in topics:
        settings = configs.settings_of(ResourceType.TOPIC, topic.name)
        kept[ConfigResource(ResourceType.TOPIC, topic.name)] = _settings_of_test(settings)
    return ConfigsImage(ConfigsImage().by_resource.with_changes(kept))


def _settings_of_test(settings: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in settings.items() if name not in OMITTED_TOPIC_CONFIGS} | NO_DELETION_CONFIGS
