"""The assignor `simple`: each partition is assigned to about the same number of members, and each member gets about the
same number of partitions.

If there are more members than partitions, members share a partition. A member keeps former partitions as far as the
numbers allow.

DIVERGES: members and partitions are taken in the order of their ids; Apache Kafka takes them in the order of its hash
tables. Members get the same number of partitions. A topic of which a member gets no partition is left out of the
member's target; Apache Kafka writes it, without partitions, if the member had some before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Final, TypeAlias

NAME: Final = "simple"
TopicPartition: TypeAlias = tuple[bytes, int]
Assigned: TypeAlias = frozenset[TopicPartition]
NOTHING: Final[Assigned] = frozenset()


def assign_simple(
    subscriptions: Mapping[str, frozenset[bytes]],
    assignable: Mapping[bytes, Iterable[int]],
    before: Mapping[str, Assigned],
) -> dict[str, Assigned]:
    """Compute the partitions of each member by member id.

    `subscriptions` has the ids of the existing topics to which each member subscribes. `assignable` has the partitions
    of each topic that may be assigned. `before` has the last target of each member.
    """
    members = sorted(subscriptions)
    if len(set(subscriptions.values())) <= 1:
        topics = next(iter(subscriptions.values()), frozenset())
        partitions = [(topic, index) for topic in sorted(topics) for index in sorted(assignable.get(topic, ()))]
        kept = {member: {each for each in before.get(member, NOTHING) if each[0] in topics} for member in members}
        return divide_partitions(members, partitions, kept) if topics else dict.fromkeys(members, NOTHING)
    result: dict[str, set[TopicPartition]] = {member: set() for member in members}
    former: dict[str, defaultdict[bytes, list[TopicPartition]]] = {member: defaultdict(list) for member in members}
    for member in members:
        for each in before.get(member, NOTHING):
            former[member][each[0]].append(each)
    for topic in sorted(frozenset().union(*subscriptions.values())):
        subscribed = [member for member in members if topic in subscriptions[member]]
        of_topic = {member: former[member][topic] for member in subscribed}
        partitions = [(topic, index) for index in sorted(assignable.get(topic, ()))]
        for member, shared in divide_partitions(subscribed, partitions, of_topic).items():
            result[member] |= shared
    return {member: frozenset(partitions) for member, partitions in result.items()}


def divide_partitions(
    members: Sequence[str], partitions: Sequence[TopicPartition], before: Mapping[str, Iterable[TopicPartition]]
) -> dict[str, Assigned]:
    """Divide partitions among members that all subscribe to their topics. A member keeps partitions of `before` as far
    as the numbers allow."""
    sharing = -(-len(members) // len(partitions)) if partitions else 0
    """The largest number of members that one partition is assigned to."""
    mean = sharing * len(partitions) / len(members)
    wanted = {member: ceil(mean * (place + 1)) - ceil(mean * place) for place, member in enumerate(members)}
    assigned: dict[str, list[TopicPartition]] = {}
    holders: dict[TopicPartition, list[str]] = {partition: [] for partition in partitions}
    for member in members:
        kept = assigned[member] = []
        for partition in sorted(before.get(member, ())):
            owners = holders.get(partition)
            if owners is not None and len(kept) < wanted[member] and len(owners) < sharing:
                kept.append(partition)
                owners.append(member)
    unfilled = [member for member in members if len(assigned[member]) < wanted[member]]
    for partition, owners in holders.items():
        while len(owners) < sharing and unfilled:
            chosen = next((each for each in unfilled if each not in owners), None)
            if chosen is None:
                break
            unfilled.remove(chosen)
            assigned[chosen].append(partition)
            owners.append(chosen)
            if len(assigned[chosen]) < wanted[chosen]:
                unfilled.append(chosen)
    return {member: frozenset(kept) for member, kept in assigned.items()}
