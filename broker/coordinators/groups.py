"""All groups that this broker coordinates: which shard has which, and requests that concern several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Protocol

from coordinator.group.config import GroupConfig
from coordinator.group.partition import partition_of
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.coordinators.partition_log import GroupLog
    from broker.coordinators.shard_runner import ShardRunner
    from broker.runtime.environment import Environment


class Spawn(Protocol):
    def __call__(self, work: Coroutine[object, object, None], /) -> object: ...


class Groups:
    """`gained` and `lost` tell which partitions of `__consumer_offsets` this broker leads; the rest is requests.

    `partitions_count` says how many partitions the topic has, or will have.
    """

    def __init__(
        self,
        config: GroupConfig,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
        partitions_count: Callable[[], int],
    ) -> None:
        self.config = config
        self._environment = environment
        self._loop = loop
        self._spawn = spawn
        self._partitions_count = partitions_count
        self._runners: dict[int, ShardRunner] = {}

    # The partitions

    def gained(self, group_log: GroupLog) -> None:
        """We lead this partition now: load its groups. The first costs an import of the whole coordinator."""
        from broker.coordinators.shard_runner import ShardRunner

        runner = ShardRunner(group_log, self.config, self._environment, self._loop)
        self.lost(group_log.index)
        self._runners[group_log.index] = runner
        self._spawn(runner.load())

    def lost(self, index: int) -> None:
        """We do not lead this partition any more, or it is gone."""
        runner = self._runners.pop(index, None)
        if runner is not None:
            runner.close()

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Forget the offsets of topics that are no more."""
        if not self._runners:
            return
        from coordinator.group.events import TopicsDeleted

        event = TopicsDeleted(frozenset(topics))
        for runner in list(self._runners.values()):
            if runner.refusal is ErrorCode.NONE:
                runner.submit(event)

    def close(self) -> None:
        for index in list(self._runners):
            self.lost(index)

    # Requests

    @property
    def wall_ms(self) -> int:
        return self._environment.wall_ms()

    def fresh_id(self) -> str:
        """A random uuid (version 4) in its text form."""
        raw = bytearray(self._environment.entropy(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def partition_of(self, group_id: str) -> int:
        return partition_of(group_id, self._partitions_count())

    def runner_of(self, group_id: str) -> ShardRunner | ErrorCode:
        """The shard of a group, or why there is none to ask."""
        runner = self._runners.get(self.partition_of(group_id))
        if runner is None:
            return ErrorCode.NOT_COORDINATOR
        return runner if runner.refusal is ErrorCode.NONE else runner.refusal

    @property
    def runners(self) -> list[ShardRunner]:
        return [runner for _, runner in sorted(self._runners.items())]
