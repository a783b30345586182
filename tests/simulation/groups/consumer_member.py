"""A member of a consumer group (KIP-848) as clients are: it sends heartbeats, gives partitions back, takes new ones,
leaves, forgets, comes back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Final, TypeAlias

from moldau.coordinator.consumer.events import ConsumerHeartbeat
from moldau.coordinator.group import events
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.groups.client import Sent

Owned: TypeAlias = frozenset[tuple[bytes, int]]
"""Partitions: topic id and index."""

JOIN: Final = 0
LEAVE: Final = -1
LEAVE_FOR_A_WHILE: Final = -2
"""The epoch with which a static member leaves and keeps its place."""
VERSION: Final = 1
COMMIT_VERSION: Final = 9
"""The first version of OffsetCommit with which such members may commit."""
NOTHING: Final[Owned] = frozenset()
LONG_SHARE: Final = 0.02
"""How often a join has a rack that no record can hold, so that it is refused."""
LONG_RACK: Final = "r" * 40_000
LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
"""The coordinator has given the member's partitions to others: it drops them, and joins again."""
FATAL: Final = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.GROUP_ID_NOT_FOUND)
"""The client ends."""


def partitions_of(listed: Iterable[TopicPartitions]) -> Owned:
    return frozenset((each.topic_id, index) for each in listed for index in each.partitions)


def listed(owned: Owned) -> list[TopicPartitions]:
    topics = sorted({topic_id for topic_id, _ in owned})
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(index for each, index in owned if each == topic_id))
        for topic_id in topics
    ]


def commit_of(group_id: str, member_id: str, epoch: int, topic: str, partition: int, offset: int) -> Sent:
    """A commit of one offset."""
    committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")

    def make(waiter: Waiter) -> events.Event:
        request = OffsetCommitRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])],
        )
        return events.CommitOffsets(waiter, request)

    return make, COMMIT_VERSION


class ConsumerMember:
    def __init__(self, name: str, group_id: str, topics: list[str], random: Random, instance: str | None) -> None:
        self.name = name
        self.group_id = group_id
        self.topics = topics
        self.random = random
        self.instance = instance
        self.rebalance_ms = random.choice((5_000, 20_000, 60_000))
        self.assignor = random.choice((None, None, "uniform", "range"))
        self.regex = ""
        """The regular expression of topics to which it is subscribed as well; empty: none."""
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        """A process begins: of what it was it knows its configuration."""
        self.lives += 1
        self.member_id = f"{self.name}-{self.lives}"
        self.drop()

    def drop(self) -> None:
        """It has no partition, and joins with its next heartbeat."""
        self.epoch = JOIN
        self.owned: Owned = NOTHING
        self.target: Owned = NOTHING
        self.says_nothing_new = False
        """Whether its last heartbeat only said that it lives: such a request may come again much later."""
        self.told: Owned | None = None
        """What the coordinator was last told that it owns; None: it has to be told everything."""

    # What it sends

    def heartbeat(self) -> Sent:
        """Everything in the first one, and if the coordinator may know less than the member; else what is new."""
        request = partial(
            ConsumerGroupHeartbeatRequest,
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
        )
        if self.told is None or self.epoch == JOIN:
            request = partial(
                request,
                rebalance_timeout_ms=self.rebalance_ms,
                subscribed_topic_names=[*self.topics],
                subscribed_topic_regex=self.regex,
                server_assignor=self.assignor,
            )
        if self.epoch == JOIN and self.random.random() < LONG_SHARE:
            request = partial(request, rack_id=LONG_RACK)
        owned = self.owned
        if owned != self.told:
            # The coordinator may give to others what this request does not name, so it is not taken any more.
            self.target = owned
        self.says_nothing_new = self.told == owned and self.epoch != JOIN
        if not self.says_nothing_new:
            request = partial(request, topic_partitions=listed(owned))
        self.told = owned
        return self._made(request)

    def _made(self, request: Callable[[], ConsumerGroupHeartbeatRequest]) -> Sent:
        name = self.name

        def make(waiter: Waiter) -> events.Event:
            return ConsumerHeartbeat(waiter, request(), name, "/10.0.0.1", "", None)

        return make, VERSION

    def leave(self) -> Sent:
        """It has given up its partitions before it says so."""
        epoch = LEAVE if self.instance is None or self.random.random() < 0.3 else LEAVE_FOR_A_WHILE
        request = partial(
            ConsumerGroupHeartbeatRequest,
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance,
        )
        self.begin()
        return self._made(request)

    def subscribe(self, topics: list[str], regex: str) -> None:
        self.topics = topics
        self.regex = regex
        self.told = None

    def wants(self, topic: str) -> bool:
        """Whether it is subscribed to a topic, by its name or by the regular expression."""
        return topic in self.topics or re.fullmatch(self.regex, topic) is not None

    def claim(self, epoch: int, owned: Owned) -> Sent:
        """A heartbeat of this epoch that reports these partitions, whatever the member has."""
        return self._made(
            partial(
                ConsumerGroupHeartbeatRequest,
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance,
                topic_partitions=listed(owned),
            )
        )

    def say_everything(self) -> None:
        self.told = None

    def commit(self, topic: str, partition: int, offset: int) -> Sent:
        return commit_of(self.group_id, self.member_id, self.epoch, topic, partition, offset)

    # What becomes of it

    def reconcile(self) -> None:
        """It gives partitions back, and takes those that are its own now."""
        self.owned = self.target

    def hear(self, response: object) -> None:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        error = ErrorCode(response.error_code)
        if error is ErrorCode.NONE:
            if response.member_epoch > JOIN:
                self.epoch = response.member_epoch
            if response.assignment is not None:
                self.target = partitions_of(response.assignment.topic_partitions)
            return
        if error in LOST:
            self.drop()
        elif error in FATAL:
            self.begin()
        else:
            self.told = None
