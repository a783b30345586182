"""The topics of a cluster, from the `__cluster_metadata` that a broker or controller keeps in its log directory.

The metadata have what is not in the files of a topic: the number of partitions, the leader of each, and whether the log
cleaner works on the topic. The newest snapshot is read, then the log after it; later calls read what was appended
since. Records past the quorum's high watermark are read, too, because the directory does not state it. Records of other
kinds and of other topics are skipped by their first bytes, because a cluster has up to a million partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.framed_records import FramedRecords
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import BatchHeader
from moldau.protocol.record_reader import records_of
from moldau.protocol.records import metadata
from moldau.protocol.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from moldau.protocol.schema import spec_of
from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import FileSystem
from moldau.storage.segment.batch_scan import iterate_batch_headers, iterate_batch_places
from moldau.storage.segment.segment_listing import ListedSegment, list_segments, locate_batch, offset_index_of
from moldau.tables.refusals import warn

DIRECTORY: Final = "__cluster_metadata-0"
SNAPSHOT_SUFFIX: Final = ".checkpoint"
OFFSET_DIGITS: Final = 20
TOPIC: Final = 2
"""The resource type of topics in configurations."""
LEADER_UNCHANGED: Final = -2
RECORDS: Final = FramedRecords("metadata", vars(metadata))
KEYS: Final = {
    each: spec_of(each).key
    for each in (
        TopicRecord,
        PartitionRecord,
        PartitionChangeRecord,
        RemoveTopicRecord,
        ConfigRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
    )
}
READ_KEYS: Final = frozenset(KEYS.values())
OF_PARTITIONS: Final = frozenset({KEYS[PartitionRecord], KEYS[PartitionChangeRecord]})
TOPIC_ID: Final = slice(7, 23)
"""The bytes of the topic id in a record of a partition: they follow the frame (three bytes) and the number of the
partition."""


@dataclass(slots=True)
class KnownTopic:
    """The id of a topic and the leaders of its partitions, from the metadata of the cluster."""

    name: str
    topic_id: bytes
    leaders: dict[int, int] = field(default_factory=dict)
    """The node id of the leader of each partition; -1 if the partition has no leader."""


class ClusterMetadata:
    """The topics of a cluster, from the metadata log. `names`: the topics to keep; None keeps all."""

    def __init__(self, fs: FileSystem, names: Iterable[str] | None = None) -> None:
        self._fs = fs
        self._names = None if names is None else frozenset(names)
        self._topics: dict[bytes, KnownTopic] = {}
        self._policies: dict[str, str | None] = {}
        self._pending: list[object] | None = None
        """The records of a metadata transaction that has not ended; None if no transaction is open."""
        self._next_offset = 0
        self.is_known = False
        """Whether the metadata of a log directory could be read."""

    def refresh(self, log_directories: Sequence[str]) -> None:
        """Read the metadata that are new since the last call, from the directory whose metadata log ends at the highest
        offset. If the log is damaged, or this user may not read it, print a warning and drop all metadata. Raises
        OSError."""
        places = [f"{each}/{DIRECTORY}" for each in log_directories if self._fs.exists(f"{each}/{DIRECTORY}")]
        if not places:
            return
        try:
            _, place = max((self._end_of(place), place) for place in places)
            self._read(place)
        except (MalformedMessage, FileNotFoundError, PermissionError) as problem:
            warn(f"the metadata of the cluster cannot be read, and what it says is unknown: {problem}")
            self._topics, self._policies, self._next_offset, self.is_known = {}, {}, 0, False

    def topics(self) -> dict[str, KnownTopic]:
        return {each.name: each for each in self._topics.values()}

    def is_compacted(self, topic: str) -> bool:
        return "compact" in (self._policies.get(topic) or "")

    def _end_of(self, place: str) -> int:
        """The offset after the last batch of the metadata log in a directory."""
        segments = list_segments(self._fs, place)
        for segment in reversed(segments):
            index = offset_index_of(self._fs, segment)
            opened = OpenFile(self._fs.open(segment.path(), read_only=True))
            last_offset = -1
            for found in iterate_batch_places(opened.file, index.last_position() if index else 0, segment.size):
                last_offset = found.last_offset
            if last_offset >= 0:
                return last_offset + 1
        return 0

    def _read(self, place: str) -> None:
        segments = list_segments(self._fs, place)
        snapshots = sorted(name for name in self._fs.list_directory(place) if is_snapshot(name))
        newest = int(snapshots[-1][:OFFSET_DIGITS]) if snapshots else 0
        first = segments[0].base_offset if segments else 0
        if not self.is_known or self._next_offset < first:
            self._topics, self._policies, self._pending = {}, {}, None
            if snapshots:
                self._replay(self._fs.read(f"{place}/{snapshots[-1]}"))
            self._next_offset = newest
            if first > newest:
                raise MalformedMessage(f"{place}: the log begins at {first}, and the snapshot ends at {newest}")
        for segment in segments:
            if segment.next_base_offset is None or segment.next_base_offset > self._next_offset:
                self._read_segment(segment)
        self.is_known = True

    def _read_segment(self, segment: ListedSegment) -> None:
        start = locate_batch(self._fs, segment, self._next_offset)
        if start is None:
            return
        opened = OpenFile(self._fs.open(segment.path(), read_only=True))
        for position, header in iterate_batch_headers(opened.file, start.position, segment.size):
            if header.base_offset < self._next_offset:
                continue
            if not header.is_control:
                self._replay_batch(opened.file.pread(header.size, position), 0, header)
            self._next_offset = header.last_offset + 1

    def _replay(self, data: bytes) -> None:
        for position, header in iterate_batches(data):
            if not header.is_control:
                self._replay_batch(data, position, header)

    def _replay_batch(self, data: bytes, position: int, header: BatchHeader) -> None:
        for record in self._wanted(data, position, header):
            if isinstance(record, BeginTransactionRecord):
                self._pending = []
            elif isinstance(record, AbortTransactionRecord):
                self._pending = None
            elif isinstance(record, EndTransactionRecord):
                pending, self._pending = self._pending or [], None
                for each in pending:
                    self._apply(each)
            elif self._pending is not None:
                self._pending.append(record)
            else:
                self._apply(record)

    def _wanted(self, data: bytes, position: int, header: BatchHeader) -> Iterator[object]:
        """Yield the decoded records of a batch that are of the wanted kinds and topics."""
        for record in records_of(data, position, header):
            value = record.value
            if value is None or len(value) < 2 or value[1] not in READ_KEYS:
                continue
            is_other = (
                value[1] in OF_PARTITIONS and self._pending is None and bytes(value[TOPIC_ID]) not in self._topics
            )
            if not is_other:
                yield RECORDS.decode(value)

    def _apply(self, record: object) -> None:
        if isinstance(record, TopicRecord):
            if self._names is None or record.name in self._names:
                self._topics[record.topic_id] = KnownTopic(record.name, record.topic_id)
        elif isinstance(record, PartitionRecord):
            if record.topic_id in self._topics:
                self._topics[record.topic_id].leaders[record.partition_id] = record.leader
        elif isinstance(record, PartitionChangeRecord):
            known = self._topics.get(record.topic_id)
            if known is not None and record.leader != LEADER_UNCHANGED:
                known.leaders[record.partition_id] = record.leader
        elif isinstance(record, RemoveTopicRecord):
            removed = self._topics.pop(record.topic_id, None)
            if removed is not None:
                self._policies.pop(removed.name, None)
        elif isinstance(record, ConfigRecord) and record.resource_type == TOPIC and record.name == "cleanup.policy":
            if record.value is None:
                self._policies.pop(record.resource_name, None)
            else:
                self._policies[record.resource_name] = record.value


def is_snapshot(name: str) -> bool:
    """Whether a file in the directory of the metadata log is a snapshot. The name of a snapshot begins with the offset
    at which it ends."""
    return name.endswith(SNAPSHOT_SUFFIX) and name[:OFFSET_DIGITS].isdecimal()
