"""A running cluster as the source of a backup. Its logs are fetched from the leaders, as a read_uncommitted consumer
fetches them: with aborted transactions and markers.

    Fetch ─▶ stored bytes      ListOffsets ─▶ log start, high watermark      OffsetForLeaderEpoch ─▶ does an earlier
    backup still agree         the quorum ─▶ metadata (quorum.py)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from moldau.backup.manifest import PartitionKey
from moldau.backup.sources.order import TRANSACTIONS_TOPIC, listing_rounds_of
from moldau.backup.sources.port import ATTEMPTS_MAX, LogDeleted, LogEnds, LogStartMoved
from moldau.backup.sources.quorum import QuorumClient
from moldau.kraft.image.topics import TopicsImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from moldau.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.tables.client.cluster import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Cluster,
    RefusedByBroker,
    TransientError,
    check_error,
)
from moldau.tables.client.fetching import fetch_partition, fetched_batches
from moldau.tables.client.settings import Address, ConnectionSettings
from moldau.tables.refusals import DataLost, Refused

T = TypeVar("T")
FETCH_SIZE: Final = 4 << 20
"""The maximum size of a Fetch response in bytes. A single larger batch is returned whole."""
FETCH_VERSION: Final = 17
FETCH_WAIT_MS_MAX: Final = 500
CONSUMER_REPLICA_ID: Final = -1


@dataclass(frozen=True, slots=True)
class ClusterLog:
    """The log of a partition on its leader, as a `SourceLog` and its `LogReader`."""

    cluster: Cluster
    key: PartitionKey
    start_offset: int
    end_offset: int

    @property
    def place(self) -> str:
        return f"the leader of {self.key}"

    def has_epoch_up_to(self, epoch: int, end_offset: int) -> bool:
        if epoch < 0:
            return False
        found = self._retry(lambda: self._ask_epoch(epoch))
        return found.leader_epoch == epoch and found.end_offset >= end_offset

    def open_reader(self) -> ClusterLog:
        return self

    def close(self) -> None:
        """Do nothing: all logs share the connections of the cluster."""

    def read(self, offset: int, taken: int) -> bytes:
        """Fetch batches from the one that contains `offset`, or else from the first one after it. Raises
        `LogStartMoved`, `Refused`, and `DataLost` if the log has become shorter.
        """
        return self._retry(lambda: self._fetch(offset))

    def _retry(self, attempt: Callable[[], T]) -> T:
        """Call `attempt` as `Cluster.retry` does. Raises `LogDeleted` once the topic is not there any more."""

        def unless_deleted() -> T:
            try:
                return attempt()
            except TransientError:
                topic = self.cluster.topics([self.key.topic]).get(self.key.topic)
                if topic is None or topic.topic_id != self.key.topic_id:
                    raise LogDeleted(f"topic {self.key.topic} was deleted while it was read") from None
                raise

        return self.cluster.retry(str(self.key), unless_deleted)

    def _fetch(self, offset: int) -> bytes:
        leader = self.cluster.leader_of((self.key.topic, self.key.partition))
        partition = FetchPartition(partition=self.key.partition, fetch_offset=offset, partition_max_bytes=FETCH_SIZE)
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS_MAX,
            min_bytes=1,
            max_bytes=FETCH_SIZE,
            topics=[FetchTopic(topic=self.key.topic, topic_id=self.key.topic_id, partitions=[partition])],
        )
        answer = fetch_partition(leader, request, FETCH_VERSION, str(self.key))
        self._check(offset, answer)
        return fetched_batches(leader, (self.key.topic, self.key.partition), offset, self.end_offset, answer)

    def _check(self, offset: int, answer: PartitionData) -> None:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            place = (self.key.topic, self.key.partition)
            start_offset = self.cluster.offsets_at([place], EARLIEST_TIMESTAMP)[place]  # The answer need not tell it.
            if offset < start_offset:
                raise LogStartMoved(start_offset)
            raise DataLost(f"{self.key}: the log ends before offset {offset} now: an unclean election cut it")
        check_error(answer.error_code, str(self.key))

    def _ask_epoch(self, epoch: int) -> EpochEndOffset:
        leader = self.cluster.leader_of((self.key.topic, self.key.partition))
        wanted = OffsetForLeaderPartition(partition=self.key.partition, leader_epoch=epoch)
        topic = OffsetForLeaderTopic(topic=self.key.topic, partitions=[wanted])
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=[topic])
        reply = leader.ask(request, OffsetForLeaderEpochResponse, 4)
        answer = reply.topics[0].partitions[0]
        check_error(answer.error_code, str(self.key))
        return answer


class ClusterSource:
    """A running cluster as a `BackupSource`."""

    readers_max = 1
    """Logs are read one at a time, because a client has one request in flight."""

    def __init__(self, settings: ConnectionSettings, controllers: Sequence[Address], now_ms: Callable[[], int]) -> None:
        """Connect to the cluster. Raises `Refused` if no broker answers."""
        self._cluster = Cluster(settings)
        self._quorum = QuorumClient(self._cluster, controllers)
        self._now_ms = now_ms
        self._cluster.topics(())
        if self._cluster.cluster_id is None:
            raise Refused("the brokers have no cluster id")
        self.cluster_id = self._cluster.cluster_id

    def list_log_ends(self) -> LogEnds:
        """Read the metadata and the ends of all logs from the cluster. Raises `Refused` and `MalformedMessage`."""
        for _ in range(ATTEMPTS_MAX - 1):
            try:
                return self._ask()
            except RefusedByBroker:
                continue  # A topic may have been made or deleted between the metadata and the question for its ends.
        return self._ask()

    def _ask(self) -> LogEnds:
        began_ms = self._now_ms()
        metadata = self._quorum.fetch_metadata()
        topics = metadata.image.topics
        decided = {log.key.partition: log.end_offset for log in self._logs(topics, [TRANSACTIONS_TOPIC])}
        logs: list[ClusterLog] = []
        for names in listing_rounds_of(topic.name for topic in topics.by_id.values()):
            logs += self._logs(topics, names)
        return LogEnds(began_ms, self._now_ms(), metadata.snapshot(began_ms), logs, decided)

    def close(self) -> None:
        self._cluster.close()

    def _logs(self, topics: TopicsImage, names: Sequence[str]) -> list[ClusterLog]:
        names = [name for name in names if topics.by_name(name) is not None]
        if not names:
            return []
        missing = [name for name in names if name not in self._cluster.topics(names)]
        if missing:
            raise RefusedByBroker(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {missing[0]} cannot be described")
        found = [topic for name in names if (topic := topics.by_name(name)) is not None]
        keys = [(topic.name, number) for topic in found for number in sorted(topic.partitions)]
        starts, ends = (self._cluster.offsets_at(keys, each) for each in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP))
        ids = {topic.name: topic.id for topic in found}
        return [
            ClusterLog(self._cluster, PartitionKey(name, ids[name], number), starts[name, number], ends[name, number])
            for name, number in keys
        ]
