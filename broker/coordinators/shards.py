"""The state machines of one coordinator: one for each partition of its internal topic that this broker leads."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, TypeVar

from moldau.broker.config.internal_topics import InternalTopic
from moldau.broker.coordinators.definition import CoordinatorDefinition, KeyType
from moldau.broker.coordinators.partition_log import CoordinatorLog
from moldau.broker.coordinators.shard_runner import LoadingProgress, ShardRunner
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.errors import ErrorCode

ShardT = TypeVar("ShardT")
RequestT = TypeVar("RequestT")
LoadedT = TypeVar("LoadedT")
REMEMBERED_MAX: Final = 4_096
"""The most keys whose hash is remembered. The hash of a transactional id is needed eight times in one transaction."""
REMEMBERED_LENGTH_MAX: Final = 256
"""The length (characters) of the longest key whose hash is remembered. A client may send keys of 32 KiB."""


class Shards(Generic[ShardT, RequestT, LoadedT]):
    """The state machines of one coordinator on this broker, by partition of its internal topic.

    `partitions_count` gives the number of partitions of a topic, or None if the topic does not exist yet.
    """

    def __init__(
        self,
        row: CoordinatorDefinition[ShardT, RequestT, LoadedT],
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
        partitions_count: Callable[[str], int | None],
    ) -> None:
        self._row = row
        self._environment = environment
        self._loop = loop
        self._spawn = spawn
        self._partitions_count = partitions_count
        self._loading = LoadingProgress(row.topic.name, environment.precise_ns)
        self._runners: dict[int, ShardRunner[ShardT, RequestT, LoadedT]] = {}

    @property
    def topic(self) -> InternalTopic:
        return self._row.topic

    @property
    def key_type(self) -> KeyType:
        return self._row.key_type

    @property
    def required_acks(self) -> int:
        """The acks with which the records of the state machines are appended: `CoordinatorDefinition.required_acks`."""
        return self._row.required_acks

    def replace_row(self, row: CoordinatorDefinition[ShardT, RequestT, LoadedT]) -> None:
        """Use another definition of the coordinator for the state machines that are created from now on. Its topic must
        be the same.
        """
        assert row.topic == self.topic
        self._row = row

    # The partitions

    def on_leadership_gained(self, partition_log: CoordinatorLog) -> None:
        """Load the state machine of a partition that this broker began to lead. The state machine that the partition
        had before is closed.
        """
        runner = ShardRunner(self._row, partition_log, self._environment, self._loop, self._loading)
        self.on_leadership_lost(partition_log.index)
        self._runners[partition_log.index] = runner
        self._spawn(runner.load())

    def on_leadership_lost(self, index: int) -> None:
        """Close the state machine of a partition that this broker does not lead any more, or that is deleted."""
        runner = self._runners.pop(index, None)
        if runner is not None:
            runner.close()

    def close(self) -> None:
        for index in list(self._runners):
            self.on_leadership_lost(index)

    # Requests

    def partition_of(self, key: str) -> int:
        """The partition of the internal topic that stores a key: a group id, a transactional id or the key of a share
        partition.

        If the topic does not exist yet, the number of partitions with which it will be created is used.
        """
        count = self._partitions_count(self.topic.name)
        return partition_of(key, self.topic.partitions if count is None else count)

    def runner_of(self, key: str) -> ShardRunner[ShardT, RequestT, LoadedT] | ErrorCode:
        """The `ShardRunner` of the partition that stores a key. If this broker does not lead the partition or has not
        loaded it, returns the error with which requests about the key are refused.
        """
        return self.runner_at(self.partition_of(key))

    def runner_at(self, index: int) -> ShardRunner[ShardT, RequestT, LoadedT] | ErrorCode:
        """The `ShardRunner` of a partition of the internal topic. If this broker does not lead the partition or has not
        loaded it, returns the error with which requests to the partition are refused.
        """
        runner = self._runners.get(index)
        if runner is None:
            return ErrorCode.NOT_COORDINATOR
        return runner if runner.is_open else runner.refusal

    @property
    def runners(self) -> list[ShardRunner[ShardT, RequestT, LoadedT]]:
        """The runners of all state machines, loaded or not, in the order of their partitions."""
        return [runner for _, runner in sorted(self._runners.items())]


INT32_MIN = -0x80000000


def java_hash(text: str) -> int:
    """Compute Java's `String.hashCode`: 31 * h + unit over the UTF-16 units, as a signed 32-bit number."""
    return _remembered_hash(text) if len(text) <= REMEMBERED_LENGTH_MAX else _hash(text)


def _hash(text: str) -> int:
    encoded = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        result = (31 * result + unit) & 0xFFFFFFFF
    return result - (1 << 32) if result & 0x80000000 else result


_remembered_hash: Final = lru_cache(REMEMBERED_MAX)(_hash)


def partition_of(key: str, partitions_count: int) -> int:
    """The partition of an internal topic that stores a key, and whose leader is the key's coordinator. It is |hash|
    modulo the number of partitions, as in Apache Kafka's brokers.
    """
    code = java_hash(key)
    return 0 if code == INT32_MIN else abs(code) % partitions_count
