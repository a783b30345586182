"""The log directories of one or several brokers of a cluster, as a source of segments.

If several replicas of a partition are in these directories, only one is read. Of the replicas with the leader's history
(replica_histories.py), it is the one with the highest checkpointed high watermark. Below their high watermarks these
replicas are equal, so the others have no further records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from moldau.storage.checkpoints.meta_properties import (
    InvalidMetaProperties,
    MetaProperties,
    ZooKeeperMetaProperties,
    read_meta_properties,
)
from moldau.storage.checkpoints.partition_metadata import CorruptPartitionMetadata, read_topic_id, uuid_text
from moldau.storage.checkpoints.text_checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    OffsetsByPartition,
    TopicPartition,
    read_offsets,
)
from moldau.storage.files.log_paths import (
    DELETE_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    parse_partition_directory,
)
from moldau.storage.files.port import FileSystem
from moldau.storage.segment.segment_listing import ListedSegment, list_segments
from moldau.storage.tiered.layout import CLUSTER_MANIFEST_KEY
from moldau.tables.origins.cluster_metadata import ClusterMetadata
from moldau.tables.origins.local_partition import LocalPartition
from moldau.tables.origins.port import PartitionOrigin
from moldau.tables.origins.replica_histories import choose_replicas, read_epochs, replica_files
from moldau.tables.refusals import ClusterMismatch, PlaceUnavailable, Refused, warn

LOCAL_READ_COST: Final = 1
"""The cost of reading an offset from a local file, to which the costs of other sources are relative."""
COMPACTED_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""The topics that are compacted in every cluster."""
LISTINGS_MAX: Final = 10
"""The most times that a directory is listed. Retention may delete a file after the listing, before its size is read."""


class Replica(NamedTuple):
    """A replica of a partition: its directory and its broker."""

    log_directory: str
    directory: str
    node_id: int | None


class Checkpoints(NamedTuple):
    """The offsets in the checkpoints of a log directory, by partition."""

    high_watermarks: OffsetsByPartition
    log_starts: OffsetsByPartition
    cleaner_points: OffsetsByPartition


class LogDirectories:
    """The `Origin` that reads the log directories of brokers."""

    def __init__(
        self,
        fs: FileSystem,
        directories: Sequence[str],
        metadata: ClusterMetadata | None = None,
        named: Collection[str] = (),
    ) -> None:
        """Examine the directories. `metadata` has the topics that will be opened. If a topic in `named` is deleted
        meanwhile, the read is refused. Raises `Refused`, `ClusterMismatch` and OSError."""
        self._named = named
        self._fs = fs
        self._directories = directories
        self._metadata = metadata or ClusterMetadata(fs)
        self.cost = LOCAL_READ_COST
        self.cluster_id: str | None = None
        self.node_ids: dict[str, int | None] = {}
        """The node id of each log directory; None for a directory that no broker has formatted."""
        for directory in directories:
            if not fs.is_directory(directory):
                raise PlaceUnavailable(f"path: {directory} is not a directory")
            if fs.exists(f"{directory}/{LEADER_EPOCH_CHECKPOINT}"):
                whole = directory.rpartition("/")[0]
                raise Refused(f"path: {directory} is one partition: name the log directory that has it, {whole}")
            self._identify(directory)
        self._replicas: dict[TopicPartition, list[Replica]] = {}
        self._deleted: set[TopicPartition] = set()
        """The partitions whose directories are being deleted."""
        for directory in directories:
            self._find(directory)

    def partitions(self) -> Mapping[TopicPartition, Sequence[Replica]]:
        return self._replicas

    def open(self, keys: Sequence[TopicPartition]) -> list[PartitionOrigin]:
        """List the segments of these partitions. The checkpoints are read before the files are listed, so that the
        files have all records below the high watermark.

        A partition whose topic was deleted meanwhile is left out. Raises `Refused` if its topic was named, and also
        `CorruptCheckpoint`.
        """
        wanted = [key for key in keys if key in self._replicas]
        if not wanted:
            return []
        checkpoints = self._checkpoints()
        self._metadata.refresh(self._directories)
        opened: list[PartitionOrigin] = []
        for key in wanted:
            try:
                opened.append(self._open(key, checkpoints))
            except FileNotFoundError:
                if any(self._fs.exists(each.directory) for each in self._replicas[key]):
                    raise
                if key[0] in self._named:
                    raise Refused(f"{self._replicas[key][0].directory} is being deleted") from None
                self._deleted.add(key)  # A reader of all topics reads those that stay.
        return opened

    def missing(self) -> Mapping[TopicPartition, str]:
        """The partitions that should exist but are not in these directories, each with the evidence. The evidence is
        the metadata of the cluster if a directory has them, and otherwise the checkpoints, which may mention a topic
        for some seconds after it was deleted."""
        self._metadata.refresh(self._directories)
        found: dict[TopicPartition, str] = {}
        if self._metadata.is_known:
            for topic, known in self._metadata.topics().items():
                there = f"of {len(known.leaders)} partitions of {topic}, as the metadata of the cluster say"
                found |= {(topic, number): there for number in sorted(known.leaders)}
        else:
            for directory, checkpoints in self._checkpoints().items():
                found |= dict.fromkeys(checkpoints.high_watermarks, f"named in {directory}/{HIGH_WATERMARK_CHECKPOINT}")
        return {key: reason for key, reason in found.items() if key not in self._replicas and key not in self._deleted}

    def _checkpoints(self) -> dict[str, Checkpoints]:
        names = (HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT)
        return {
            path: Checkpoints(*(read_offsets(self._fs, path, name) for name in names)) for path in self._directories
        }

    def _open(self, key: TopicPartition, checkpoints: Mapping[str, Checkpoints]) -> LocalPartition:
        replicas = self._replicas[key]
        topic_id = self._topic_id(key, replicas)
        may_have_gaps = (
            key[0] in COMPACTED_TOPICS
            or self._metadata.is_compacted(key[0])
            or any(key in each.cleaner_points for each in checkpoints.values())
        )
        marks = {each.directory: checkpoints[each.log_directory].high_watermarks.get(key) for each in replicas}
        known = [
            replica_files(self._fs, each.directory, each.node_id, mark, is_only_one=len(replicas) == 1)
            for each in replicas
            if (mark := marks[each.directory]) is not None
        ]
        topic = self._metadata.topics().get(key[0])
        leader = topic.leaders.get(key[1]) if topic is not None else None
        chosen, others = choose_replicas(key, known, leader, may_have_gaps=may_have_gaps)
        for _, difference in others:
            warn(difference)
        directory = chosen[0].directory if chosen else replicas[0].directory
        listed = _segments_now(self._fs, directory)
        epochs = [each.epochs for each in chosen] or [read_epochs(self._fs, directory)]
        starts = [each.entries[0].start_offset for each in epochs if each.entries]
        return LocalPartition(
            self._fs,
            key,
            directory,
            listed,
            log_start_offset=max(checkpoints[each.log_directory].log_starts.get(key, 0) for each in replicas),
            high_watermark=chosen[0].high_watermark if chosen else None,
            topic_id=topic_id,
            node_id=next(each.node_id for each in replicas if each.directory == directory),
            may_have_gaps=may_have_gaps,
            epochs_start=max(starts, default=None),
        )

    def _topic_id(self, key: TopicPartition, replicas: Sequence[Replica]) -> bytes | None:
        """Return the topic id of the replicas of a partition; None if no replica has one.

        Raises `Refused` if the replicas belong to two topics of the same name, or to another topic than the cluster's
        metadata name. A topic was then deleted while a broker was down.
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
        topic_id = next(iter(known), None)
        if topic_id is not None and self._other_id(key[0], topic_id) is not None:
            self._metadata.refresh(self._directories)  # It may have been made again since they were read.
            other = self._other_id(key[0], topic_id)
            if other is not None:
                ids = f"{uuid_text(topic_id)}, and the metadata of the cluster name {uuid_text(other)}"
                raise Refused(
                    f"path: {known[topic_id]} is of a topic {key[0]} with the id {ids}: it was deleted and made again,"
                    " and the replicas of the new one are in other places"
                )
        return topic_id

    def _other_id(self, topic: str, topic_id: bytes) -> bytes | None:
        """The id of a topic in the metadata of the cluster, if it differs from `topic_id`; otherwise None."""
        known = self._metadata.topics().get(topic)
        return None if known is None or known.topic_id == topic_id else known.topic_id

    def _identify(self, directory: str) -> None:
        found: MetaProperties | ZooKeeperMetaProperties | None
        try:
            found = read_meta_properties(self._fs, directory)
        except ZooKeeperMetaProperties as older:
            found = older  # No node serves the directory, and its segments are as those of later ones.
        except InvalidMetaProperties as problem:
            raise Refused(str(problem)) from None
        self.node_ids[directory] = found.node_id if found else None
        if found is None or found.cluster_id is None:
            return
        if self.cluster_id not in (None, found.cluster_id):
            raise ClusterMismatch(
                f"path: {directory} is of cluster {found.cluster_id}, other directories are of {self.cluster_id}"
            )
        self.cluster_id = found.cluster_id

    def _find(self, directory: str) -> None:
        node_id = self.node_ids[directory]
        for name in self._fs.list_directory(directory):
            parsed = parse_partition_directory(name)
            if parsed is None or parsed.suffix:
                if parsed is not None and parsed.suffix == DELETE_SUFFIX:
                    self._deleted.add((parsed.topic, parsed.partition))
                continue
            if not is_partition(self._fs, f"{directory}/{name}"):
                continue
            replicas = self._replicas.setdefault((parsed.topic, parsed.partition), [])
            for other in replicas:
                if other.node_id == node_id:
                    whose = "an unknown broker" if node_id is None else f"broker {node_id}"
                    raise Refused(f"path: {name} is in {directory} and is {other.directory} too, both of {whose}")
            replicas.append(Replica(directory, f"{directory}/{name}", node_id))


def is_partition(fs: FileSystem, path: str) -> bool:
    """Whether an entry whose name is that of a partition is really a partition's directory, in which a broker has made
    a file.

    Other entries are foreign, or are being deleted; a read of another topic must not fail because of them.
    """
    try:
        return fs.is_directory(path) and any(
            name == PARTITION_METADATA or name.endswith(LOG_SUFFIX) for name in fs.list_directory(path)
        )
    except (FileNotFoundError, NotADirectoryError):
        return False


def _segments_now(fs: FileSystem, place: str) -> list[ListedSegment]:
    for _ in range(LISTINGS_MAX):
        try:
            return list_segments(fs, place)
        except FileNotFoundError:
            if not fs.exists(place):
                raise
    raise Refused(f"{place}: files of it went {LISTINGS_MAX} times while they were listed")


def is_tiered_storage(fs: FileSystem, directory: str) -> bool:
    """Whether a directory is the root of a tiered storage. A log directory is not."""
    return fs.exists(f"{directory}/{CLUSTER_MANIFEST_KEY}")
