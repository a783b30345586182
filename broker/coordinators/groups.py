"""The group coordinator of a broker, for the request handlers: one state machine for each partition of
`__consumer_offsets`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from moldau.broker.coordinators.group_coordinator import group_coordinator_definition
from moldau.broker.coordinators.held_heartbeats import HeldHeartbeats
from moldau.broker.coordinators.shards import Shards
from moldau.broker.coordinators.share_state_persister import ShareStatePersister
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.history import GroupHistory, unknown_log_start
from moldau.coordinator.group.image import CoordinatorImage
from moldau.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.coordinators.definition import CommandReports
    from moldau.broker.coordinators.shard_runner import ShardRunner
    from moldau.coordinator.group.events import ShardRequest
    from moldau.coordinator.group.records import LoadedChange
    from moldau.coordinator.group.target import ComputeTarget
    from moldau.coordinator.shard.shard import GroupShard

    GroupRunner: TypeAlias = ShardRunner[GroupShard, ShardRequest, LoadedChange]


PROTOCOLS: Final = {"group.version": "consumer", "streams.version": "streams"}
"""The entry of `group.coordinator.rebalance.protocols` for the protocol that a feature turns on."""


class Groups(Shards["GroupShard", "ShardRequest", "LoadedChange"]):
    """The group coordinator. The `CoordinatorRegistry` tells it which partitions of `__consumer_offsets` this broker
    begins and ceases to lead.
    """

    def __init__(
        self,
        config: GroupConfig,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
        partitions_count: Callable[[str], int | None],
        current_image: Callable[[], CoordinatorImage],
        share_states: ShareStatePersister | None = None,
        log_start_of: Callable[[str, int], int] = unknown_log_start,
    ) -> None:
        """`log_start_of` gives the log start offset of a partition, or -1 if this broker does not know it."""
        self.config = config
        self._current_image = current_image
        self._share_states = share_states
        self.held_heartbeats = HeldHeartbeats(loop)
        self._history = GroupHistory(environment.wall_ms(), log_start_of=log_start_of)
        row = group_coordinator_definition(config, current_image, self._history, self._perform)
        super().__init__(row, environment, loop, spawn, partitions_count)

    def configure(self, config: GroupConfig) -> None:
        """Apply settings that have changed at run time. Each state machine uses them from its next step on."""
        self.config = config
        self.replace_row(group_coordinator_definition(config, self._current_image, self._history, self._perform))
        for runner in self.runners:
            runner.shard.config = config

    def serves(self, feature: str, levels: Mapping[str, int]) -> bool:
        """Whether clients may use the group protocol of a feature. The level of the feature in `levels` must be above
        0, and `group.coordinator.rebalance.protocols` must list the protocol. For share groups only the level counts.
        """
        protocol = PROTOCOLS.get(feature)
        return levels.get(feature, 0) > 0 and (protocol is None or protocol in self.config.rebalance_protocols)

    def _perform(self, command: object, reports: CommandReports[ShardRequest]) -> None:
        """Carry out a command of a state machine: answer held heartbeats, initialize share states, compute a target
        assignment, or resolve regular expressions.
        """
        from moldau.broker.coordinators.regex_resolution import resolve_regexes
        from moldau.broker.coordinators.share_group_commands import perform_initialization
        from moldau.coordinator.classic.events import AnswerHeartbeats
        from moldau.coordinator.consumer.events import ResolveRegexes
        from moldau.coordinator.group.target import ComputeTarget
        from moldau.coordinator.share.events import InitializeStates

        if isinstance(command, AnswerHeartbeats):
            self.held_heartbeats.answer(command)
        elif isinstance(command, InitializeStates):
            assert self._share_states is not None
            perform_initialization(self._share_states, command, reports)
        elif isinstance(command, ComputeTarget):
            self._spawn(compute_target(self._environment, command, reports))
        else:
            assert isinstance(command, ResolveRegexes)
            self._spawn(resolve_regexes(self._environment, command, reports))

    def on_topics_deleted(self, topics: Iterable[str], topic_ids: Iterable[bytes]) -> None:
        """Delete the committed offsets and the subscriptions that groups on this broker have for deleted topics."""
        runners = [runner for runner in self.runners if runner.refusal is ErrorCode.NONE]
        if not runners:
            return
        from moldau.coordinator.group.events import TopicsDeleted

        event = TopicsDeleted(frozenset(topics), frozenset(topic_ids))
        for runner in runners:
            runner.submit(event)

    def look_at_topic(self, name: str) -> None:
        """Compute the hash of a topic (KIP-1101) and cache it, so that no step of a group's state machine has to
        compute it.
        """
        image = self._current_image()
        topic = image.topic_of_name(name)
        if topic is not None:
            image.topic_hash(topic)

    def compile_regex(self, regex: str, then: Callable[[], None]) -> None:
        """Compile a regular expression in a thread, so that no step of a group's state machine has to compile it; then
        call `then`.
        """
        from moldau.broker.coordinators.regex_resolution import compile_regex

        self._spawn(compile_regex(self._environment, regex, then))

    def fresh_id(self) -> str:
        """Return a new member id: a random UUID (version 4) as text."""
        raw = bytearray(self._environment.entropy(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


async def compute_target(
    environment: Environment, command: ComputeTarget, reports: CommandReports[ShardRequest]
) -> None:
    """Compute the target assignment of a large group in a thread, and report it to the group's state machine."""
    from moldau.coordinator.group.target import TargetComputed

    targets = await environment.offload(command.compute)
    reports.report(TargetComputed(command.group_id, command.epoch, targets))
