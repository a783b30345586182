"""Placement of new replicas: leaders spread evenly over brokers, replicas over racks, unfenced brokers preferred."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from moldau.kraft.image.cluster import Broker


def place_replicas(
    brokers: Iterable[Broker], partitions_count: int, replication_factor: int, random: Random
) -> list[list[int]]:
    """The replicas of each partition, the preferred leader first.

    `replication_factor` is at most the count of brokers. A fenced broker gets a replica only where the others do not
    suffice. Placement begins at a random broker, so that the leaders of many topics with one partition spread over
    brokers.
    """
    all_brokers = sorted(brokers)
    serving = stripe([broker for broker in all_brokers if not broker.fenced], random)
    fenced = stripe([broker for broker in all_brokers if broker.fenced], random)
    assert replication_factor <= len(serving) + len(fenced), "more replicas than brokers"
    return [replicas_of(index, serving, fenced, replication_factor) for index in range(partitions_count)]


def stripe(brokers: Sequence[Broker], random: Random) -> list[Broker]:
    """The brokers in an order in which neighbours are in different racks as far as possible."""
    racks: dict[str | None, list[Broker]] = {}
    for broker in rotated(brokers, random.randrange(len(brokers)) if brokers else 0):
        racks.setdefault(broker.rack, []).append(broker)
    striped: list[Broker] = []
    for row in range(max(map(len, racks.values()), default=0)):
        striped.extend(members[row] for members in racks.values() if row < len(members))
    return striped


def replicas_of(index: int, serving: list[Broker], fenced: list[Broker], replication_factor: int) -> list[int]:
    """The replicas of the partition with this index, the preferred leader first.

    Each partition begins one broker further than the one before; after each round over all brokers the followers are
    chosen in another order.
    """
    candidates: list[Broker] = []
    if serving:
        leader, *others = rotated(serving, index % len(serving))
        candidates = [leader, *rotated(others, index // len(serving) % max(1, len(others)))]
    candidates += rotated(fenced, index % max(1, len(fenced)))
    chosen: list[Broker] = []
    for broker in candidates:
        if broker.rack not in (other.rack for other in chosen):
            chosen.append(broker)
    chosen += [broker for broker in candidates if broker not in chosen]
    return [broker.id for broker in chosen[:replication_factor]]


def rotated(items: Sequence[Broker], count: int) -> list[Broker]:
    return [*items[count:], *items[:count]]
