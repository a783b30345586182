"""The `uniform` assignor for members that subscribe to different topics.

A member keeps its partitions of topics to which it subscribes. Each free partition goes to the least loaded subscriber,
topics with few subscribers for their partitions first. Then partitions of a topic move from its most to its least
loaded subscribers, topic by topic, until a whole round moves none, or after `ROUNDS_MAX` rounds: the result is balanced
as far as the subscriptions allow, and no more partitions have moved than that takes.

Loads are counted over all topics of a member. `Balancer` walks the subscribers of one topic from both ends of their
loads at once; members of equal load are a range that is served in turn, so that no heap is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import unpack
from typing import Final

ROUNDS_MAX: Final = 16
NO_OWNER: Final = -1


class Balancer:
    """The subscribers of one topic, sorted by load: the least loaded range grows to the right, the most loaded one to
    the left. The loads themselves are not read again once a member is in a range."""

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
        """The load of the most loaded member less that of the least loaded one, before anything was moved."""
        return self._loads[self._sorted[-1]] - self._loads[self._sorted[0]]

    @property
    def is_balanced(self) -> bool:
        return self._high_load - self._low_load <= 1

    def least_loaded(self) -> int:
        """The member that is given a partition next."""
        if self._next_low >= self._low_end:
            self._low_load += 1
            while self._low_end < len(self._sorted) and self._loads[self._sorted[self._low_end]] == self._low_load:
                self._low_end += 1
            self._next_low = 0
        self._next_low += 1
        return self._sorted[self._next_low - 1]

    def most_loaded(self) -> int | None:
        """The member that gives up a partition next; None: all that are left were excluded."""
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
        """The member that `most_loaded` returned last has no partition of the topic to give."""
        here, last = self._next_high + 1, self._high_end - 1
        self._sorted[here], self._sorted[last] = self._sorted[last], self._sorted[here]
        self._high_end -= 1


class HeterogeneousAssignment:
    """One run of the assignor. `topics` has the subscriptions and `before` the assignment of each member, by topic id.

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
        """The partitions of each member, by member id and topic id; empty if no member has a topic."""
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
        """Topics with many partitions for each subscriber first, then those with few subscribers, then by id."""

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
        """Move partitions of one topic. Returns how many moved."""
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
