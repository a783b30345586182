"""A consumer of the classic protocol whose assignor is its own: it joins, leads or follows, says that it lives, leaves.

Eager, it gives everything up before it joins. Cooperative, it keeps what it owns, and joins once more after it has
given up what it has to; the leader gives nobody what another one still owns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import count, groupby
from random import Random
from typing import Final, TypeAlias

from moldau.coordinator.classic import events as classic_events
from moldau.coordinator.consumer.embedded_protocol import read_assignment, read_subscription
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatResponse
from moldau.protocol.messages.join_group import (
    JoinGroupResponse,
)
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.sync_group import SyncGroupResponse
from moldau.protocol.records.offsets import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from tests.simulation.groups.client import Sent, heartbeat_request, join_request, sync_request

Named: TypeAlias = frozenset[tuple[str, int]]
"""Partitions: the topic's name and the index."""

NOTHING: Final[Named] = frozenset()
VERSION: Final = 1
"""Of the subscription and of the assignment: the first one that tells what is owned."""
LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


def listed(partitions: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    by_name = groupby(sorted(partitions), lambda each: each[0])
    return [TopicPartition(topic=name, partitions=[index for _, index in each]) for name, each in by_name]


def named(topics: Iterable[TopicPartition]) -> Named:
    return frozenset((each.topic, index) for each in topics for index in each.partitions)


class ClassicMember:
    def __init__(
        self,
        name: str,
        group_id: str,
        topics: list[str],
        random: Random,
        instance: str | None,
        *,
        is_eager: bool,
        sizes: Callable[[], Mapping[str, int]],
    ) -> None:
        """`sizes`: the number of partitions of each topic, as the metadata says now."""
        self.name = name
        self.group_id = group_id
        self.topics = topics
        self.instance = instance
        self.is_eager = is_eager
        self.session_ms = random.choice((6_000, 10_000, 30_000))
        self.rebalance_ms = random.choice((5_000, 20_000))
        self._sizes = sizes
        self._fresh = count(1)
        self._seen_sizes: Mapping[str, int] = {}
        self.begin()

    def begin(self) -> None:
        """A process begins: of what it was it knows its configuration."""
        self.member_id, self.generation = "", -1
        self.owned: Named = NOTHING
        self.is_joined = self.is_synced = False
        self._followers: dict[str, ConsumerProtocolSubscription] | None = None
        """The members with what they said, if this one leads."""

    @property
    def protocol(self) -> str:
        return "range" if self.is_eager else "cooperative-sticky"

    def next_request(self) -> Sent:
        """What a client would send now."""
        if not self.is_joined or (self.is_synced and self._leads_over_grown_topics()):
            return self.join()
        return self.heartbeat() if self.is_synced else self.sync()

    def _leads_over_grown_topics(self) -> bool:
        return self._followers is not None and self._seen_sizes != self._sizes()

    def join(self) -> Sent:
        self.is_joined = self.is_synced = False
        self._followers = None
        if self.is_eager:
            self.owned = NOTHING
        said = ConsumerProtocolSubscription(topics=self.topics, owned_partitions=listed(self.owned))
        metadata = struct.pack(">h", VERSION) + encode(said, VERSION)
        return join_request(self, {self.protocol: metadata}, lambda: f"{self.name}/{next(self._fresh)}"), 9

    def sync(self) -> Sent:
        planned = {} if self._followers is None else self._plan(self._followers)
        head = struct.pack(">h", VERSION)
        shares = {
            key: head + encode(ConsumerProtocolAssignment(assigned_partitions=listed(each)), VERSION)
            for key, each in planned.items()
        }
        return sync_request(self, self.protocol, shares)

    def _plan(self, followers: Mapping[str, ConsumerProtocolSubscription]) -> dict[str, set[tuple[str, int]]]:
        """Of each topic its share to each member: what it owns first, then what nobody owns. What has to be given up is
        free in the next generation.
        """
        self._seen_sizes = dict(self._sizes())
        owners = {each: key for key, said in followers.items() for each in named(said.owned_partitions)}
        planned: dict[str, set[tuple[str, int]]] = {key: set() for key in followers}
        for topic, size in sorted(self._seen_sizes.items()):
            shares: dict[str, set[int]] = {key: set() for key, said in followers.items() if topic in said.topics}
            for index in range(size):
                share = shares.get(owners.get((topic, index), ""))
                if share is not None and len(share) < -(-size // len(shares)):
                    share.add(index)
            for index in range(size if shares else 0):
                if (topic, index) not in owners:
                    min(shares.items(), key=lambda item: (len(item[1]), item[0]))[1].add(index)
            for key, share in shares.items():
                planned[key] |= {(topic, index) for index in share}
        return planned

    def heartbeat(self) -> Sent:
        return heartbeat_request(self)

    def leave(self) -> Sent:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        self.begin()
        return lambda waiter: classic_events.Leave(waiter, request), 5

    # What becomes of it

    def hear(self, response: object) -> Named:
        """The answer to what it asked last. Returns the partitions that it owns from now on, and did not before."""
        before = self.owned
        match response:
            case JoinGroupResponse():
                self._joined(response)
            case SyncGroupResponse():
                self.is_synced = response.error_code == ErrorCode.NONE
                if self.is_synced:
                    self.owned = named(read_assignment(bytes(response.assignment)).assigned_partitions)
                    if not self.is_eager and before - self.owned:
                        self.is_joined = False  # so that others get what it has given up
                self._refused(response.error_code)
            case HeartbeatResponse():
                self._refused(response.error_code)
        return self.owned - before

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code == ErrorCode.NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.is_joined, self.is_synced = True, False
            if response.leader == response.member_id and not response.skip_assignment:
                self._followers = {each.member_id: read_subscription(bytes(each.metadata)) for each in response.members}
        else:
            self._refused(response.error_code)

    def _refused(self, error_code: int) -> None:
        if error_code in LOST:
            self.begin()
        elif error_code == ErrorCode.ILLEGAL_GENERATION:
            self.owned = NOTHING
            self.is_joined = self.is_synced = False
        elif error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.is_joined = self.is_synced = False
