"""The coordinators of a broker, by internal topic. The registry tells them which partitions the broker begins and
ceases to lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from moldau.broker.config.internal_topics import InternalTopic
from moldau.broker.coordinators.definition import KeyType
from moldau.broker.coordinators.partition_log import CoordinatorLog, LeaderLog
from moldau.replication.partition import Partition
from moldau.storage.log.log import Log


class TopicCoordinator(Protocol):
    """The part of a coordinator's `Shards` that the registry uses."""

    @property
    def topic(self) -> InternalTopic: ...

    @property
    def key_type(self) -> KeyType: ...

    @property
    def required_acks(self) -> int: ...

    def on_leadership_gained(self, partition_log: CoordinatorLog) -> None: ...

    def on_leadership_lost(self, index: int) -> None: ...

    def close(self) -> None: ...

    def partition_of(self, key: str) -> int: ...


class CoordinatorRegistry:
    """All coordinators of a broker. `flush` syncs a log soon, if the settings of the log ask for that."""

    def __init__(self, coordinators: Iterable[TopicCoordinator], flush: Callable[[Log], None]) -> None:
        self._by_topic = {each.topic.name: each for each in coordinators}
        self._flush = flush

    def of_key_type(self, key_type: int) -> TopicCoordinator | None:
        """The coordinator for a key type of FindCoordinator; None if this broker has none."""
        return next((each for each in self._by_topic.values() if each.key_type == key_type), None)

    def on_leadership_gained(self, partition: Partition) -> None:
        """Tell the coordinator of the partition's topic that this broker began to lead the partition. A partition of a
        topic without a coordinator is ignored.
        """
        coordinator = self._by_topic.get(partition.topic)
        if coordinator is not None:
            coordinator.on_leadership_gained(LeaderLog(partition, self._flush, coordinator.required_acks))

    def on_leadership_lost(self, partition: Partition) -> None:
        """Tell the coordinator of the partition's topic that this broker does not lead the partition any more, or that
        the partition is deleted. A partition of a topic without a coordinator is ignored.
        """
        coordinator = self._by_topic.get(partition.topic)
        if coordinator is not None:
            coordinator.on_leadership_lost(partition.index)

    def close(self) -> None:
        for coordinator in self._by_topic.values():
            coordinator.close()
