"""The log directories of the nodes of a cluster as the source of a backup: of Moldau or of Apache Kafka, running or
stopped.

If the directories have several replicas of a partition, the one with the most committed data is read
(tables/origins/log_directories.py). Its log ends

    at the high watermark that its node checkpointed last, at most some seconds ago
    at the end of its files, if it is the only replica of its partition: all of them is committed
    at the end of its files, if it is `__transaction_state`: it must not end before the markers that the other logs have
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.backup.manifest import PartitionKey
from moldau.backup.sources.log_files import FilesEnd, LogFiles, end_of_files
from moldau.backup.sources.metadata_log import ReplayedMetadata
from moldau.backup.sources.order import TRANSACTIONS_TOPIC, listing_rounds_of
from moldau.backup.sources.port import ATTEMPTS_MAX, LogEnds
from moldau.kraft.image.topics import Topic, TopicsImage
from moldau.kraft.snapshot.names import snapshots_in
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.files.log_paths import METADATA_DIRECTORY
from moldau.storage.files.port import FileSystem
from moldau.tables.origins.local_partition import LocalPartition
from moldau.tables.origins.log_directories import LogDirectories
from moldau.tables.origins.replica_histories import read_epochs
from moldau.tables.refusals import Refused, warn

READERS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class DirectoryLog:
    """The log of a replica in a log directory: a `SourceLog`."""

    fs: FileSystem
    key: PartitionKey
    start_offset: int
    end_offset: int
    place: str

    def has_epoch_up_to(self, epoch: int, end_offset: int) -> bool:
        found = read_epochs(self.fs, self.place).end_offset_for(epoch, self.end_offset)
        return found.epoch == epoch and found.end_offset >= end_offset

    def open_reader(self) -> LogFiles:
        return LogFiles(self.fs, self.place)


class DirectorySource:
    """Log directories as a `BackupSource`."""

    readers_max = READERS_MAX

    def __init__(self, fs: FileSystem, directories: Sequence[str], now_ms: Callable[[], int]) -> None:
        """Find the replicas in the directories. Raises `Refused`, which names the directory, and OSError."""
        self._fs = fs
        self._paths = directories
        self._now_ms = now_ms
        found = LogDirectories(fs, directories)
        if found.cluster_id is None:
            raise Refused(f"path: no node has formatted {', '.join(directories)}: there is no meta.properties")
        self.cluster_id = found.cluster_id

    def list_log_ends(self) -> LogEnds:
        """Read the metadata and the ends of all logs from the directories. Raises `Refused`, `MalformedMessage` and
        OSError.
        """
        for _ in range(ATTEMPTS_MAX - 1):
            try:
                return self._ask()
            except Refused:
                continue  # A topic may have been made or deleted between the metadata and the listing.
        return self._ask()

    def _ask(self) -> LogEnds:
        began_ms = self._now_ms()
        metadata = read_metadata(self._fs, self._paths)
        topics = metadata.image.topics
        snapshot = metadata.snapshot(began_ms)
        directories = LogDirectories(self._fs, self._paths)
        _check_complete(topics, directories.partitions())
        logs: list[DirectoryLog] = []
        for names in listing_rounds_of(topic.name for topic in topics.by_id.values()):
            keys = [(name, number) for name in names for number in sorted(_topic(topics, name).partitions)]
            opened = directories.open(keys)
            logs += [self._log(topics, each) for each in opened if isinstance(each, LocalPartition)]
        return LogEnds(began_ms, self._now_ms(), snapshot, logs)

    def _log(self, topics: TopicsImage, replica: LocalPartition) -> DirectoryLog:
        name, number = replica.key
        topic = _topic(topics, name)
        start = replica.log_start_offset
        if replica.segments and replica.segments[0].start_offset > start:
            first = replica.segments[0].start_offset
            warn(f"{replica}: the offsets from {start} to {first} are in remote storage, and not in this backup")
            start = first
        ends_with_files = len(topic.partitions[number].replicas) == 1 or name == TRANSACTIONS_TOPIC
        end = end_of_files(self._fs, replica.directory).offset if ends_with_files else replica.high_watermark
        return DirectoryLog(self._fs, PartitionKey(name, topic.id, number), start, max(start, end), replica.directory)


def read_metadata(fs: FileSystem, directories: Sequence[str]) -> ReplayedMetadata:
    """Read the metadata log that ends last, of those in the directories. Raises `Refused` if no directory has a
    metadata log or the log is damaged, and OSError."""
    places = [f"{each}/{METADATA_DIRECTORY}" for each in directories if fs.exists(f"{each}/{METADATA_DIRECTORY}")]
    if not places:
        raise Refused(
            f"path: no {METADATA_DIRECTORY} in {', '.join(directories)}: name the directory of a node that has it"
            " (metadata.log.dir, or the first of log.dirs)"
        )
    _, place = max((_end_of(fs, place), place) for place in places)
    try:
        return _replayed(fs, place)
    except MalformedMessage as malformed:
        raise Refused(f"{place}: {malformed}") from None


def _end_of(fs: FileSystem, place: str) -> FilesEnd:
    """The end of a metadata log. A controller that was cut off may have a longer log with an older epoch, whose last
    records were never committed."""
    newest = [FilesEnd(epoch, end_offset) for end_offset, epoch in snapshots_in(fs.list_directory(place))[-1:]]
    try:
        return max([end_of_files(fs, place), *newest])
    except MalformedMessage:
        return FilesEnd(-1, -1)


def _replayed(fs: FileSystem, place: str) -> ReplayedMetadata:
    snapshots = snapshots_in(fs.list_directory(place))
    newest = [(each, fs.read(f"{place}/{each.file_name}")) for each in snapshots[-1:]]
    metadata = ReplayedMetadata(*newest[0]) if newest else ReplayedMetadata()
    files, taken = LogFiles(fs, place), 0
    try:
        while data := files.read(metadata.end_offset, taken):
            taken = metadata.replay(data)
    finally:
        files.close()
    return metadata


def _topic(topics: TopicsImage, name: str) -> Topic:
    topic = topics.by_name(name)
    assert topic is not None, name
    return topic


def _check_complete(topics: TopicsImage, here: Mapping[TopicPartition, object]) -> None:
    """Raise `Refused` unless each partition has a replica in the directories."""
    missing = [
        f"{topic.name}-{number} (replicas on {', '.join(map(str, partition.replicas))})"
        for topic, number, partition in topics.partitions()
        if (topic.name, number) not in here
    ]
    if missing:
        more = f" and {len(missing) - 3} more" if missing[3:] else ""
        raise Refused(
            f"path: no directory has {', '.join(missing[:3])}{more}: name the directories of enough nodes that each"
            " partition is in one"
        )
