"""The `uniform` assignor for members that subscribe to different topics.

A member keeps its partitions of topics to which it subscribes. Each free partition goes to the least loaded subscriber
of its topic; topics with many partitions for each subscriber come first. Then partitions of one topic after the other
move from the most loaded to the least loaded subscribers. This ends when a whole round over the topics moves no
partition, or after `ROUNDS_MAX` rounds. The result is as balanced as the subscriptions allow, and no more partitions
have moved than this needs.

The load of a member is its number of partitions over all topics. `Balancer` sorts the subscribers of a topic by load,
and takes the least loaded members from one end and the most loaded from the other. Members with the same load take
turns, so no heap is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import unpack
from typing import Final

ROUNDS_MAX: Final = 16
NO_OWNER: Final = -1


class Balancer:
    """The subscribers of one topic, sorted by load: it chooses which member gives up a partition and which member gets
    one.

    Two ranges of members grow inwards from the ends: the left range has the least loaded members, the right range the
    most loaded. Members of a range take turns. The load of a member in a range is not read again.
    """

    def __init__(self, subscribers: list[int], loads: list[int]) -> None:
        self._loads = loads
        self._sorted = sorted(subscribers, key=lambda member: (loads[member], member))
        self._low_end = 0
        self._low_load = loads[self._sorted[0]] - 1
        self._next_low = 0
        self._high_start = self._high_end = len(self._sorted)
        self._high_load = loads[self._sorted[-1]] + 1
        self._next_high = len(self._sorted) - 1

    @property
    def imbalance(self) -> int:
        """The load of the most loaded member minus that of the least loaded one, before any partition was moved."""
        return self._loads[self._sorted[-1]] - self._loads[self._sorted[0]]

    @property
    def is_balanced(self) -> bool:
        return self._high_load - self._low_load <= 1

    def least_loaded(self) -> int:
        """Return the member that gets a partition next, and advance to the member after it."""
        if self._next_low >= self._low_end:
            self._low_load += 1
            while self._low_end < len(self._sorted) and self._loads[self._sorted[self._low_end]] == self._low_load:
                self._low_end += 1
            self._next_low = 0
        self._next_low += 1
        return self._sorted[self._next_low - 1]

    def most_loaded(self) -> int | None:
        """Return the member that gives up a partition next, and advance to the member after it. Returns None if all
        members that are left were excluded."""
        if self._next_high < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                self._high_load = self._loads[self._sorted[self._high_start - 1]]
            else:
                self._high_load -= 1
            while self._high_start > 0 and self._loads[self._sorted[self._high_start - 1]] == self._high_load:
                self._high_start -= 1
            self._next_high = self._high_end - 1
        if self._next_high < 0:
            return None
        self._next_high -= 1
        return self._sorted[self._next_high + 1]

    def exclude_most_loaded(self) -> None:
        """Exclude the member that `most_loaded` returned last, because it has no partition of the topic to give up."""
        here, last = self._next_high + 1, self._high_end - 1
        self._sorted[here], self._sorted[last] = self._sorted[last], self._sorted[here]
        self._high_end -= 1


class HeterogeneousAssignment:
    """One computation of an assignment. `topics` has the topic ids to which each member subscribes; `before` has each
    member's current partitions by topic id.

    Members are numbered in the order of their ids.
    """

    def __init__(
        self,
        topics: Mapping[str, frozenset[bytes]],
        before: Mapping[str, Mapping[bytes, frozenset[int]]],
        partition_counts: Mapping[bytes, int],
    ) -> None:
        self._member_ids = sorted(topics)
        self._subscribers: dict[bytes, list[int]] = {}
        self._loads = [0] * len(self._member_ids)
        for member, member_id in enumerate(self._member_ids):
            for topic in topics[member_id]:
                self._subscribers.setdefault(topic, []).append(member)
        self._owners = {topic: [NO_OWNER] * partition_counts[topic] for topic in self._subscribers}
        for member, member_id in enumerate(self._member_ids):
            for topic, partitions in before[member_id].items():
                if topic in topics[member_id]:
                    for partition in partitions:
                        if partition < partition_counts[topic]:
                            self._own(topic, partition, member)

    def build(self) -> Mapping[str, Mapping[bytes, frozenset[int]]]:
        """Compute the partitions of each member, by member id and topic id. The result is empty if no member subscribes
        to a topic."""
        if not self._subscribers:
            return {}
        for topic in self._by_priority(topic for topic, owners in self._owners.items() if NO_OWNER in owners):
            balancer = Balancer(self._subscribers[topic], self._loads)
            for partition, owner in enumerate(self._owners[topic]):
                if owner == NO_OWNER:
                    self._own(topic, partition, balancer.least_loaded())
        self._balance()
        built: list[dict[bytes, set[int]]] = [{} for _ in self._member_ids]
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                built[owner].setdefault(topic, set()).add(partition)
        return {
            member_id: {topic: frozenset(partitions) for topic, partitions in sorted(assignment.items())}
            for member_id, assignment in zip(self._member_ids, built, strict=True)
        }

    def _own(self, topic: bytes, partition: int, member: int) -> None:
        owner = self._owners[topic][partition]
        if owner != NO_OWNER:
            self._loads[owner] -= 1
        self._owners[topic][partition] = member
        self._loads[member] += 1

    def _by_priority(self, topics: Iterable[bytes]) -> list[bytes]:
        """Sort topics: those with many partitions for each subscriber first, then those with few subscribers, then by
        id."""

        def priority(topic: bytes) -> tuple[float, int, tuple[int, ...]]:
            subscribers = len(self._subscribers[topic])
            return -len(self._owners[topic]) / subscribers, subscribers, unpack(">qq", topic)

        return sorted(topics, key=priority)

    def _balance(self) -> None:
        topics = self._by_priority(topic for topic, members in self._subscribers.items() if len(members) > 1)
        last_moved: bytes | None = None
        for _ in range(ROUNDS_MAX):
            for topic in topics:
                if topic == last_moved:
                    return
                if self._balance_topic(topic) or last_moved is None:
                    last_moved = topic

    def _balance_topic(self, topic: bytes) -> int:
        """Move partitions of one topic from its most loaded to its least loaded subscribers. Returns the number of
        partitions that were moved."""
        balancer = Balancer(self._subscribers[topic], self._loads)
        if balancer.imbalance <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic]):
            owned.setdefault(owner, []).append(partition)
        moved = 0
        while not balancer.is_balanced:
            giver = balancer.most_loaded()
            while giver is not None and not owned.get(giver):
                balancer.exclude_most_loaded()
                giver = balancer.most_loaded()
            if giver is None:
                break
            partition = owned[giver].pop()
            taker = balancer.least_loaded()
            if balancer.is_balanced:
                break
            self._own(topic, partition, taker)
            moved += 1
        return moved
