"""The keys of objects in remote storage: of a cluster, a partition and a segment. docs/tiered_storage.md describes
them."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from moldau.storage.checkpoints.partition_metadata import parse_uuid, uuid_text
from moldau.storage.files.log_paths import offset_name, offset_of_name
from moldau.storage.tiered.metadata.remote_segment import RemotePartition

CLUSTER_MANIFEST_KEY: Final = "moldau-cluster.json"
TOPICS_PREFIX: Final = "topics/"
PINS_PREFIX: Final = "pins/"
PROBES_PREFIX: Final = "probes/"
"""The prefix of the objects that a check at the start of a broker writes and removes."""


class ObjectKind(Enum):
    """The kinds of objects of a segment. The value is the suffix of their keys."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    """The transaction index; only a segment with aborted transactions has one."""
    PRODUCER_SNAPSHOT = ".snapshot"
    """The state of the producers at the end of the segment."""
    LEADER_EPOCHS = ".leader_epoch_checkpoint"
    """All leader epochs from the start of the log to the end of the segment."""
    MANIFEST = ".manifest.json"
    """The manifest of the segment. It is written last: a segment without it was not copied completely."""


DATA_KINDS: Final[tuple[ObjectKind, ...]] = tuple(kind for kind in ObjectKind if kind is not ObjectKind.MANIFEST)
REQUIRED_KINDS: Final[tuple[ObjectKind, ...]] = tuple(
    kind for kind in DATA_KINDS if kind is not ObjectKind.TRANSACTION_INDEX
)


class SegmentObject(NamedTuple):
    """The parts of the key of a segment's object."""

    partition: RemotePartition
    start_offset: int
    segment_id: bytes
    kind: ObjectKind


def topic_prefix(topic: str, topic_id: bytes) -> str:
    """The prefix of the keys of all objects of a topic."""
    return f"{TOPICS_PREFIX}{topic}.{uuid_text(topic_id)}/"


def partition_prefix(partition: RemotePartition) -> str:
    """The prefix of the keys of all objects of a partition. A listing of it is in the order of start offsets."""
    return f"{topic_prefix(partition.topic, partition.topic_id)}{partition.partition}/"


def object_key(partition: RemotePartition, start_offset: int, segment_id: bytes, kind: ObjectKind) -> str:
    """The key of one object of a segment."""
    name = f"{offset_name(start_offset, '')}-{uuid_text(segment_id)}{kind.value}"
    return partition_prefix(partition) + name


def parse_key(key: str) -> SegmentObject | None:
    """Parse the key of a segment's object; None for a key of another form."""
    if not key.startswith(TOPICS_PREFIX):
        return None
    try:
        topic_part, partition_part, name = key[len(TOPICS_PREFIX) :].split("/")
        topic, _, topic_id = topic_part.rpartition(".")
        stem, dot, suffix = name.partition(".")
        digits, _, segment_id = stem.partition("-")
        partition = RemotePartition(topic, parse_uuid(topic_id), int(partition_part))
        found = SegmentObject(partition, offset_of_name(digits), parse_uuid(segment_id), ObjectKind(dot + suffix))
    except ValueError:
        return None
    # Each object has exactly one key: a partition "+0" and an id with stray bits are not taken for one.
    return found if object_key(*found) == key else None


def parse_partition_prefix(prefix: str) -> RemotePartition | None:
    """Parse the prefix of the keys of a partition; None for a prefix of another form."""
    try:
        topic_part, partition_part, _ = prefix.removeprefix(TOPICS_PREFIX).split("/")
        topic, _, topic_id = topic_part.rpartition(".")
        found = RemotePartition(topic, parse_uuid(topic_id), int(partition_part))
    except ValueError:
        return None
    return found if partition_prefix(found) == prefix else None
