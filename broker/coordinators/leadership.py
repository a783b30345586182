"""Starts and ends coordinators as the leadership of their partitions comes and goes."""

from __future__ import annotations

from collections.abc import Callable

from broker.config.internal_topics import GROUP_METADATA_TOPIC
from broker.coordinators.groups import Groups
from broker.coordinators.partition_log import PartitionGroupLog
from replication.partition import Partition
from storage.log.log import Log


class CoordinatorLeadership:
    """Told of every partition that this broker begins or ceases to lead."""

    def __init__(self, groups: Groups, flush: Callable[[Log], None]) -> None:
        """`flush` makes a log durable soon."""
        self._groups = groups
        self._flush = flush

    def gained(self, partition: Partition) -> None:
        if partition.topic == GROUP_METADATA_TOPIC:
            self._groups.gained(PartitionGroupLog(partition, self._flush))

    def lost(self, partition: Partition) -> None:
        if partition.topic == GROUP_METADATA_TOPIC:
            self._groups.lost(partition.index)
