"""A member of a Streams group (KIP-1071) as clients are: it sends heartbeats, gives tasks back, takes new ones, leaves,
forgets, comes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Final, NamedTuple, TypeAlias

from moldau.coordinator.streams.events import HeartbeatReply, StreamsHeartbeat
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskIds, Topology
from tests.simulation.groups.client import Sent
from tests.simulation.groups.consumer_member import commit_of

TaskKeys: TypeAlias = frozenset[tuple[str, int]]
"""Tasks: the id of a subtopology, and the partition."""
JOIN: Final = 0
LEAVE: Final = -1
NO_TASKS: Final[TaskKeys] = frozenset()
LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
"""The coordinator has given the member's tasks to others: it drops them, and joins again."""


class OwnedTasks(NamedTuple):
    active: TaskKeys = NO_TASKS
    standby: TaskKeys = NO_TASKS


NOTHING: Final = OwnedTasks()


def keys_of(listed: Iterable[TaskIds]) -> TaskKeys:
    return frozenset((each.subtopology_id, partition) for each in listed for partition in each.partitions)


def task_ids(tasks: TaskKeys) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=name, partitions=sorted(partition for each, partition in tasks if each == name))
        for name in sorted({name for name, _ in tasks})
    ]


class StreamsMember:
    def __init__(self, name: str, group_id: str, process_id: str, topology: Topology, random: Random) -> None:
        self.name = name
        self.group_id = group_id
        self.process_id = process_id
        self.topology = topology
        self.rebalance_ms = random.choice((5_000, 20_000, 60_000))
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        """A process begins: of what it was it knows its configuration."""
        self.lives += 1
        self.member_id = f"{self.name}-{self.lives}"
        self.drop()

    def drop(self) -> None:
        """It has no task, and joins with its next heartbeat."""
        self.epoch = JOIN
        self.owned = self.target = NOTHING
        self.says_nothing_new = False
        self._told: OwnedTasks | None = None
        """What the coordinator was last told that it owns; None: it has to be told everything."""

    def say_everything(self) -> None:
        self._told = None

    def heartbeat(self) -> Sent:
        """Everything in the first one; its tasks if they are others, or the coordinator may know others."""
        request = partial(
            StreamsGroupHeartbeatRequest,
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            endpoint_information_epoch=0,
            shutdown_application=False,
        )
        if self.epoch == JOIN:
            request = partial(
                request,
                topology=self.topology,
                process_id=self.process_id,
                rebalance_timeout_ms=self.rebalance_ms,
            )
        owned = self.owned
        if owned != self._told:
            # The coordinator may give to others what this request does not name, so it is not taken any more.
            self.target = owned
        self.says_nothing_new = self._told == owned and self.epoch != JOIN
        if not self.says_nothing_new:
            request = partial(
                request,
                active_tasks=task_ids(owned.active),
                standby_tasks=task_ids(owned.standby),
                warmup_tasks=[],
            )
        self._told = owned
        return self._made(request)

    def leave(self) -> Sent:
        request = partial(
            StreamsGroupHeartbeatRequest,
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE,
            endpoint_information_epoch=0,
            shutdown_application=False,
        )
        self.begin()
        return self._made(request)

    def _made(self, request: partial[StreamsGroupHeartbeatRequest]) -> Sent:
        name = self.name
        return lambda waiter: StreamsHeartbeat(waiter, request(), name, "/10.0.0.1"), 0

    def commit(self, topic: str, partition: int, offset: int) -> Sent:
        return commit_of(self.group_id, self.member_id, self.epoch, topic, partition, offset)

    def hear(self, response: object) -> None:
        assert isinstance(response, HeartbeatReply)
        body = response.response
        error = ErrorCode(body.error_code)
        if error in LOST:
            self.drop()
        elif error is not ErrorCode.NONE:
            self._told = None
        elif body.member_epoch >= JOIN:
            self.epoch = body.member_epoch
            if body.active_tasks is not None:
                self.target = OwnedTasks(keys_of(body.active_tasks), keys_of(body.standby_tasks or ()))
