"""The replicas of this broker, by topic name and by topic id."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.protocol.errors import ErrorCode
from moldau.replication.partition import Partition
from moldau.storage.log.log import Log

Indexed = dict[int, Partition]
"""The local partitions of one topic, by index."""


class TrafficTotals:
    """Totals of the records appended, and of the bytes appended and read."""

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0

    def add(self, partition: Partition) -> None:
        self.messages_in += partition.messages_in
        self.bytes_in += partition.bytes_in
        self.bytes_out += partition.bytes_out


class Replicas:
    """All replicas of this broker by topic name and by topic id. Each topic is in both dictionaries or in neither."""

    def __init__(self) -> None:
        self.by_name: dict[str, Indexed] = {}
        self.by_id: dict[bytes, Indexed] = {}
        self._ids: dict[str, bytes] = {}
        self._offline: dict[bytes, dict[int, None]] = {}
        """The partitions (indexes by topic id) that are assigned to this broker and whose log is in no online log
        directory.
        """
        self._expected: dict[bytes, dict[int, None]] = {}
        """The partitions (indexes by topic id) whose logs are being created."""
        self._verifies_transactions = True
        self.generation = 0
        """A number that increases whenever a replica is added or removed, so that a cached lookup can be recognised as
        stale.
        """
        self.gone = TrafficTotals()
        """The totals of removed replicas, so that sums over all partitions never decrease."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    def __contains__(self, partition: Partition) -> bool:
        return self.get(partition.topic, partition.index) is partition

    def add(self, partition: Partition) -> None:
        self.generation += 1
        partition.verifies_transactions = self._verifies_transactions
        indexed = self.by_name.setdefault(partition.topic, {})
        indexed[partition.index] = partition
        self.by_id[partition.topic_id] = indexed
        self._ids[partition.topic] = partition.topic_id
        if self._expected:
            self.forget_expected(partition.topic_id, partition.index)

    def verify_transactions(self, verifies: bool) -> None:
        """Set whether the first records of a transaction in a partition are appended only after the transaction
        coordinator has confirmed the transaction (transaction.partition.verification.enable).
        """
        self._verifies_transactions = verifies
        for partition in self:
            partition.verifies_transactions = verifies

    def on_flushed(self, log: Log) -> None:
        """Advance the high watermark of a log's partition after a sync of the log."""
        partition = self.get(log.topic, log.partition)
        if partition is not None and partition.log is log:
            partition.advance_high_watermark()

    def get(self, topic: str, index: int) -> Partition | None:
        return self.by_name.get(topic, {}).get(index)

    def log_start_of(self, topic: str, index: int) -> int:
        """The log start offset of a replica; -1 if this broker does not serve it."""
        of_topic = self.by_name.get(topic)
        partition = None if of_topic is None else of_topic.get(index)
        return -1 if partition is None else partition.log.log_start_offset

    def partition_of_log(self, its_log: Log) -> Partition | None:
        """The partition of a log; None if this broker does not serve the log any more."""
        partition = self.get(its_log.topic, its_log.partition)
        return partition if partition is not None and partition.log is its_log else None

    def expect(self, topic: str, topic_id: bytes, index: int) -> None:
        """Note a partition that will be served once its log is created."""
        self.by_id[topic_id] = self.by_name.setdefault(topic, {})
        self._ids[topic] = topic_id
        self._expected.setdefault(topic_id, {})[index] = None

    def forget_expected(self, topic_id: bytes, index: int) -> None:
        indexes = self._expected.get(topic_id, {})
        indexes.pop(index, None)
        if not indexes:
            self._expected.pop(topic_id, None)

    def give_up_expected(self, topic: str, topic_id: bytes, index: int) -> None:
        """Forget an expected partition that will not be served, and its topic if that has nothing else here."""
        self.forget_expected(topic_id, index)
        self._forget_unused(topic, topic_id)

    def is_expected(self, topic_id: bytes, index: int) -> bool:
        return index in self._expected.get(topic_id, ())

    def find(self, key: tuple[str | bytes, int]) -> Partition | None:
        """The partition with this key, the topic's name or id and the partition's index; None if this broker does not
        serve it.
        """
        topic, index = key
        known = self.by_name.get(topic) if isinstance(topic, str) else self.by_id.get(topic)
        return known.get(index) if known is not None else None

    def add_offline(self, topic: str, topic_id: bytes, index: int) -> None:
        """Note a partition that cannot be served, because its log is in no online log directory."""
        self.by_id[topic_id] = self.by_name.setdefault(topic, {})
        self._ids[topic] = topic_id
        self._offline.setdefault(topic_id, {})[index] = None

    def forget_offline(self, topic_id: bytes, index: int) -> None:
        self._offline.get(topic_id, {}).pop(index, None)

    def take_offline(self, partition: Partition) -> None:
        """Stop serving a partition whose log has failed. Requests that wait for it are answered with
        KAFKA_STORAGE_ERROR.
        """
        self.generation += 1
        self.by_name[partition.topic].pop(partition.index)
        self.add_offline(partition.topic, partition.topic_id, partition.index)
        self.gone.add(partition)
        partition.notify_removed(ErrorCode.KAFKA_STORAGE_ERROR)

    def error_of(self, topic: str | bytes, index: int) -> ErrorCode:
        """The error code of responses about a partition that this broker does not serve."""
        topic_id = self._ids.get(topic, b"") if isinstance(topic, str) else topic
        if index in self._offline.get(topic_id, ()):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.is_expected(topic_id, index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        is_unknown_id = isinstance(topic, bytes) and topic not in self.by_id
        return ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def is_offline(self, topic_id: bytes, index: int) -> bool:
        return index in self._offline.get(topic_id, ())

    @property
    def offline_count(self) -> int:
        return sum(map(len, self._offline.values()))

    def remove_topic(self, topic: str) -> list[Partition]:
        """Forget a topic. Returns its partitions, on each of which the caller calls `Partition.notify_removed`."""
        self.generation += 1
        topic_id = self._ids.pop(topic, b"")
        self.by_id.pop(topic_id, None)
        self._offline.pop(topic_id, None)
        self._expected.pop(topic_id, None)
        partitions = list(self.by_name.pop(topic, {}).values())
        for partition in partitions:
            self.gone.add(partition)
        return partitions

    def remove(self, topic: str, topic_id: bytes, index: int) -> Partition | None:
        """Forget a replica, served or offline, and its topic if that has nothing else here. Returns the replica, or
        None if this broker does not serve it. A replica whose log is being created stays expected until that has ended.
        """
        self.forget_offline(topic_id, index)
        partition = self.by_name.get(topic, {}).pop(index, None)
        if partition is not None:
            self.generation += 1
            self.gone.add(partition)
        self._forget_unused(topic, topic_id)
        return partition

    def _forget_unused(self, topic: str, topic_id: bytes) -> None:
        """Forget a topic that has neither a served nor an offline nor an expected partition here."""
        is_used = self.by_id.get(topic_id) or self._offline.get(topic_id) or self._expected.get(topic_id)
        if not is_used and self._ids.get(topic) == topic_id:
            self.remove_topic(topic)
