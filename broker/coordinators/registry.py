"""The registry of coordinators by internal topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from moldau.broker.config.internal_topics import InternalTopic
from moldau.broker.coordinators.partition_log import CoordinatorLog, LeaderLog
from moldau.broker.coordinators.row import KeyType
from moldau.replication.partition import Partition
from moldau.storage.log.log import Log


class TopicCoordinator(Protocol):
    """The interface of `Shards`, independent of the kind of machine."""

    @property
    def topic(self) -> InternalTopic: ...

    @property
    def key_type(self) -> KeyType: ...

    @property
    def required_acks(self) -> int: ...

    def gained(self, partition_log: CoordinatorLog) -> None: ...

    def lost(self, index: int) -> None: ...

    def close(self) -> None: ...

    def partition_of(self, key: str) -> int: ...


class CoordinatorRegistry:
    """All coordinators of a broker. `flush` makes a log durable soon, if its settings ask for it."""

    def __init__(self, coordinators: Iterable[TopicCoordinator], flush: Callable[[Log], None]) -> None:
        self._by_topic = {each.topic.name: each for each in coordinators}
        self._flush = flush

    def of_key_type(self, key_type: int) -> TopicCoordinator | None:
        """The coordinator for a key type of FindCoordinator; None if this broker has none."""
        return next((each for each in self._by_topic.values() if each.key_type == key_type), None)

    def gained(self, partition: Partition) -> None:
        """Tell the coordinator of a topic that this broker began to lead a partition. A topic without a coordinator is
        ignored.
        """
        coordinator = self._by_topic.get(partition.topic)
        if coordinator is not None:
            coordinator.gained(LeaderLog(partition, self._flush, coordinator.required_acks))

    def lost(self, partition: Partition) -> None:
        """Tell the coordinator of a topic that this broker does not lead a partition any more, or that the partition is
        deleted.
        """
        coordinator = self._by_topic.get(partition.topic)
        if coordinator is not None:
            coordinator.lost(partition.index)

    def close(self) -> None:
        for coordinator in self._by_topic.values():
            coordinator.close()
