"""The assignors of the coordinator, `range` and `uniform`. They decide which member reads which partition.

* `range` gives each member consecutive partitions of each topic. Members are taken in the order of their instance ids,
then member ids. So if topics have the same subscribers, partitions of the same index go to the same member. The former
assignment does not matter.
* `uniform` balances the number of partitions over the members and moves as few as possible. If all members subscribe
to the same topics, a simpler algorithm is enough (`_uniform_for_equals`); else `uniform_heterogeneous.py` balances.

DIVERGES: members and topics are taken in the order of their ids; Apache Kafka takes them in the order of its hash
tables. The members get as many partitions, but perhaps others. Neither assignor of 4.3.1 looks at racks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from moldau.coordinator.consumer.uniform_heterogeneous import HeterogeneousAssignment

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
"""The partitions of an assignment: partition indexes by topic id. A topic of which no partition is assigned is left
out."""
NOTHING: Final[Assignment] = {}


class AssignedMember(NamedTuple):
    """The data of a member that an assignor reads."""

    topics: frozenset[bytes]
    """The ids of the existing topics that it subscribes to."""
    partitions: Assignment = NOTHING
    """The target assignment of the member before this computation."""
    instance_id: str | None = None


class AssignorInput(NamedTuple):
    members: Mapping[str, AssignedMember]
    """The members by member id; at least one."""
    partition_counts: Mapping[bytes, int]
    """The number of partitions of each subscribed topic."""
    is_homogeneous: bool
    """Whether all members subscribe to the same topics."""


Assignor: TypeAlias = Callable[[AssignorInput], Mapping[str, Assignment]]
"""A function that computes the target assignment of each member, by member id. A member that the result leaves out gets
no partition."""


def assign_range(assigning: AssignorInput) -> Mapping[str, Assignment]:
    """Compute each member's assignment by the rules of `range` (see the module). Returns the assignments by member
    id."""
    subscribers: dict[bytes, int] = {}
    for member in assigning.members.values():
        for topic in member.topics:
            subscribers[topic] = subscribers.get(topic, 0) + 1
    counts = assigning.partition_counts
    left_over = {topic: counts[topic] % subscribers[topic] for topic in subscribers}
    starts = dict.fromkeys(subscribers, 0)
    assignments: dict[str, Assignment] = {}
    for member_id in sorted(assigning.members, key=lambda member_id: _range_order(assigning, member_id)):
        assignment: dict[bytes, frozenset[int]] = {}
        for topic in sorted(assigning.members[member_id].topics):
            start, size = starts[topic], counts[topic] // subscribers[topic]
            if left_over[topic] > 0:
                size += 1
                left_over[topic] -= 1
            starts[topic] = start + size
            if size:
                assignment[topic] = frozenset(range(start, start + size))
        assignments[member_id] = assignment
    return assignments


def _range_order(assigning: AssignorInput, member_id: str) -> tuple[bool, str]:
    instance_id = assigning.members[member_id].instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)


def assign_uniform(assigning: AssignorInput) -> Mapping[str, Assignment]:
    """Compute each member's assignment by the rules of `uniform` (see the module). Returns the assignments by member
    id."""
    if assigning.is_homogeneous:
        return _uniform_for_equals(assigning)
    topics = {member_id: member.topics for member_id, member in assigning.members.items()}
    before = {member_id: member.partitions for member_id, member in assigning.members.items()}
    return HeterogeneousAssignment(topics, before, assigning.partition_counts).build()


def _uniform_for_equals(assigning: AssignorInput) -> Mapping[str, Assignment]:
    members, counts = assigning.members, assigning.partition_counts
    order = sorted(members)
    topics = members[order[0]].topics
    if not topics:
        return {}
    assigned = {(topic, index) for member in members.values() for topic, index in assigned_pairs(member.partitions)}
    free = [pair for pair in _all_partitions(topics, counts) if pair not in assigned]
    least, extras = divmod(sum(counts[topic] for topic in topics), len(members))
    kept: dict[str, dict[bytes, set[int]]] = {}
    missing: dict[str, int] = {}
    for position, member_id in enumerate(order):
        # A member keeps what it has up to its quota. One of the last `extras` members must take an extra partition;
        # one before them leaves it to another unless it has that many already.
        has_extra = extras > 0
        quota = least + has_extra
        kept[member_id] = {}
        for topic, index in sorted(assigned_pairs(members[member_id].partitions)):
            if topic not in topics:
                continue
            if quota > 0:
                quota -= 1
                kept[member_id].setdefault(topic, set()).add(index)
            else:
                free.append((topic, index))
        if quota > 0 and has_extra and len(order) - position > extras:
            quota -= 1
            has_extra = False
        if quota > 0:
            missing[member_id] = quota
        extras -= has_extra
    rest = iter(free)
    for member_id, quota in missing.items():
        for topic, index in islice(rest, quota):
            kept[member_id].setdefault(topic, set()).add(index)
    return {member_id: frozen_assignment(partitions) for member_id, partitions in kept.items()}


def assigned_pairs(assignment: Assignment) -> Iterable[tuple[bytes, int]]:
    """The partitions of an assignment as pairs of topic id and index."""
    return ((topic, index) for topic, partitions in assignment.items() for index in partitions)


def frozen_assignment(assignment: Mapping[bytes, Iterable[int]]) -> Assignment:
    """An immutable copy of an assignment, without topics of which no partition is assigned."""
    return {topic: frozenset(partitions) for topic, partitions in assignment.items() if partitions}


def _all_partitions(topics: Iterable[bytes], counts: Mapping[bytes, int]) -> Iterable[tuple[bytes, int]]:
    return ((topic, index) for topic in sorted(topics) for index in range(counts[topic]))


UNIFORM: Final = "uniform"
RANGE: Final = "range"
ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniform, RANGE: assign_range}
"""The assignors by Kafka's names; the first is the default."""
