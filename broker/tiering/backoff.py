"""The backoff of failed jobs by partition: exponential, with jitter."""

from __future__ import annotations

from collections.abc import Callable

from moldau.broker.metadata.dynamic_config import DynamicConfig
from moldau.broker.runtime.environment import Environment
from moldau.replication.partition import Partition


class PartitionBackoff:
    """By partition: the number of consecutive failures, and the time (ms) of the next attempt.

    The settings are `remote.log.manager.task.retry.*`.
    """

    def __init__(self, settings: DynamicConfig, environment: Environment) -> None:
        self._settings = settings
        self._environment = environment
        self._failures: dict[Partition, tuple[int, int]] = {}

    def is_waiting(self, partition: Partition) -> bool:
        return self._environment.monotonic_ms() < self._failures.get(partition, (0, 0))[1]

    def failed(self, partition: Partition) -> None:
        config = self._settings.config
        count = self._failures.get(partition, (0, 0))[0]
        pause_ms = config.integer("remote.log.manager.task.retry.backoff.ms") << min(count, 20)
        pause_ms = min(pause_ms, config.integer("remote.log.manager.task.retry.backoff.max.ms"))
        jitter = config.real("remote.log.manager.task.retry.jitter")
        pause_ms = round(pause_ms * self._environment.random.uniform(1 - jitter, 1 + jitter))
        self._failures[partition] = (count + 1, self._environment.monotonic_ms() + pause_ms)

    def succeeded(self, partition: Partition) -> None:
        self._failures.pop(partition, None)

    def keep(self, is_served: Callable[[Partition], bool]) -> None:
        """Forget the partitions that this broker does not serve any more."""
        self._failures = {each: told for each, told in self._failures.items() if is_served(each)}
