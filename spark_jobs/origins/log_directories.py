"""The log directories of one or several brokers of a cluster, as an origin.

Of a partition with several replicas here, one is read: that with the highest high watermark in its checkpoint. All
replicas are equal below their high watermarks, so the others add nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from spark_jobs.origins.local_partition import LocalPartition
from spark_jobs.origins.port import PartitionOrigin
from spark_jobs.refusals import ClusterMismatch, Refused
from storage.checkpoints.meta_properties import InvalidMetaProperties, read_meta_properties
from storage.checkpoints.offset_checkpoint import HIGH_WATERMARKS, LOG_STARTS, Offsets, TopicPartition, read_offsets
from storage.checkpoints.partition_metadata import CorruptPartitionMetadata, read_topic_id, uuid_text
from storage.files.log_paths import parse_partition_directory
from storage.files.port import FileSystem
from storage.segment.segment_listing import ListedSegment, list_segments

COST: Final = 1
"""The cost of a local file, to which other origins are compared."""
LISTINGS_MAX: Final = 10
"""The most listings of a directory in a row: retention may delete a file after the listing, before its size is read."""


class Replica(NamedTuple):
    """A replica of a partition: its directory and its broker."""

    log_directory: str
    directory: str
    node_id: int | None


class Checkpoints(NamedTuple):
    """The checkpoints of a log directory."""

    high_watermarks: Offsets
    log_starts: Offsets


class LogDirectories:
    """The log directories as an `Origin`."""

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        """Read the directories. Raises `Refused`, `ClusterMismatch` and OSError."""
        self._fs = fs
        self.cost = COST
        self.cluster_id: str | None = None
        self.node_ids: dict[str, int | None] = {}
        """The node ids by log directory; None for a directory that no broker has formatted."""
        for directory in directories:
            if not fs.is_directory(directory):
                raise Refused(f"path: {directory} is not a directory")
            self._identify(directory)
        self._replicas: dict[TopicPartition, list[Replica]] = {}
        for directory in directories:
            self._find(directory)

    def partitions(self) -> Mapping[TopicPartition, Sequence[Replica]]:
        return self._replicas

    def open(self, keys: Sequence[TopicPartition]) -> list[PartitionOrigin]:
        """See `Origin.open`; raises `CorruptCheckpoint` too. The checkpoints are read before the files are listed, so
        that the files have all records below the high watermark.
        """
        wanted = [key for key in keys if key in self._replicas]
        used = dict.fromkeys(replica.log_directory for key in wanted for replica in self._replicas[key])
        checkpoints = {
            path: Checkpoints(read_offsets(self._fs, path, HIGH_WATERMARKS), read_offsets(self._fs, path, LOG_STARTS))
            for path in used
        }
        return [self._open(key, checkpoints) for key in wanted]

    def _open(self, key: TopicPartition, checkpoints: Mapping[str, Checkpoints]) -> LocalPartition:
        replicas = self._replicas[key]
        topic_id = self._topic_id(key, replicas)
        high_watermark, best = None, replicas[0]
        for replica in replicas:
            checkpointed = checkpoints[replica.log_directory].high_watermarks.get(key)
            if checkpointed is not None and (high_watermark is None or checkpointed > high_watermark):
                high_watermark, best = checkpointed, replica
        return LocalPartition(
            self._fs,
            key,
            best.directory,
            _segments_now(self._fs, best.directory),
            log_start_offset=max(checkpoints[each.log_directory].log_starts.get(key, 0) for each in replicas),
            high_watermark=high_watermark,
            topic_id=topic_id,
            node_id=best.node_id,
        )

    def _topic_id(self, key: TopicPartition, replicas: Sequence[Replica]) -> bytes | None:
        """The topic id of the replicas.

        Raises `Refused` where replicas are of two topics of one name: one was deleted while its broker was down.
        """
        known: dict[bytes, str] = {}
        for replica in replicas:
            try:
                topic_id = read_topic_id(self._fs, replica.directory)
            except CorruptPartitionMetadata as problem:
                raise Refused(str(problem)) from None
            if topic_id is not None:
                known.setdefault(topic_id, replica.directory)
        if len(known) > 1:
            said = " and ".join(f"{place} ({uuid_text(topic_id)})" for topic_id, place in known.items())
            raise Refused(f"path: {said} are of different topics named {key[0]}: leave out the one that was deleted")
        return next(iter(known), None)

    def _identify(self, directory: str) -> None:
        try:
            properties = read_meta_properties(self._fs, directory)
        except InvalidMetaProperties as problem:
            raise Refused(str(problem)) from None
        self.node_ids[directory] = properties.node_id if properties else None
        if properties is None:
            return
        if self.cluster_id not in (None, properties.cluster_id):
            raise ClusterMismatch(
                f"path: {directory} is of cluster {properties.cluster_id}, other directories are of {self.cluster_id}"
            )
        self.cluster_id = properties.cluster_id

    def _find(self, directory: str) -> None:
        node_id = self.node_ids[directory]
        for name in self._fs.list_directory(directory):
            parsed = parse_partition_directory(name)
            if parsed is None or parsed.suffix:
                continue
            replicas = self._replicas.setdefault((parsed.topic, parsed.partition), [])
            for other in replicas:
                if other.node_id == node_id:
                    whose = "an unknown broker" if node_id is None else f"broker {node_id}"
                    raise Refused(f"path: {name} is in {directory} and is {other.directory} too, both of {whose}")
            replicas.append(Replica(directory, f"{directory}/{name}", node_id))


def _segments_now(fs: FileSystem, place: str) -> list[ListedSegment]:
    for _ in range(LISTINGS_MAX):
        try:
            return list_segments(fs, place)
        except FileNotFoundError:
            if not fs.exists(place):
                break
    raise Refused(f"{place} is being deleted")
