"""The records of new partitions, whose replicas the controller places or the request assigns.

The controller spreads leaders evenly over brokers and replicas over racks, and prefers unfenced brokers.

DIVERGES: if racks are machines that each run several brokers (`moldau serve --cores`), a partition has no two replicas
in one rack, also if the request names them. Apache Kafka places replicas in one rack when there are fewer racks than
replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from moldau.kraft.controller.decision import ApiError
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.image.cluster import Broker
from moldau.kraft.image.topics import NO_LEADER, PartitionRegistration
from moldau.protocol.errors import ErrorCode
from moldau.protocol.records.metadata import PartitionRecord

NEW_PARTITIONS_MAX = 10_000
"""The most partitions that one request may create. It is limited because the records of a topic are one atomic
batch."""
TOO_MANY_PARTITIONS = ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
SEPARATE_RACKS_RULE = "moldau.replicas.share.rack=false keeps the replicas of a partition in different racks"


def refusal_of_assignment(
    view: ControllerView, broker_ids: Sequence[int], replication_factor: int | None
) -> ApiError | None:
    """The error of a partition with replicas on these brokers; None if they are allowed. `replication_factor` is that
    of the earlier partitions of the request; None for the first one."""
    image = view.image
    if not broker_ids:
        return ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
        )
    for broker_id in sorted(broker_ids):
        if broker_id not in image.cluster.brokers:
            message = f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        if broker_ids.count(broker_id) > 1:
            message = f"The manual partition assignment includes the broker {broker_id} more than once."
            return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if replication_factor is not None and len(broker_ids) != replication_factor:
        message = (
            f"The manual partition assignment includes a partition with {len(broker_ids)} replica(s),"
            f" but this is not consistent with previous partitions, which have {replication_factor} replica(s)."
        )
        return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    racks = [image.cluster.brokers[broker_id].rack for broker_id in broker_ids]
    if not view.settings.replicas_share_rack and len(set(racks)) < len(racks):
        twice = next(rack for rack in racks if racks.count(rack) > 1)
        message = f"The manual partition assignment has two replicas in rack {twice}: {SEPARATE_RACKS_RULE}."
        return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return None


def automatic_assignments(view: ControllerView, count: int, replication_factor: int) -> list[list[int]] | ApiError:
    brokers = [broker for broker in view.image.cluster.brokers.values() if takes_replicas(broker)]
    prefix = f"Unable to replicate the partition {replication_factor} time(s): "
    if len(brokers) < replication_factor:
        return ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{prefix}The target replication factor of {replication_factor} cannot be reached because only"
            f" {len(brokers)} broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    racks_count = len({broker.rack for broker in brokers})
    if not view.settings.replicas_share_rack and racks_count < replication_factor:
        return ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{prefix}The target replication factor of {replication_factor} cannot be reached because the brokers are"
            f" in {racks_count} rack(s): {SEPARATE_RACKS_RULE}.",
        )
    if not any(broker.is_active for broker in brokers):
        return ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, f"{prefix}All brokers are currently fenced.")
    return place_replicas(brokers, count, replication_factor, view.settings.random)


def takes_replicas(broker: Broker) -> bool:
    """Whether the broker can get new replicas: it has a log directory that is not cordoned."""
    return not broker.directories or not set(broker.directories).issubset(broker.cordoned_directories or ())


def partition_records(
    view: ControllerView, topic_id: bytes, first_partition_id: int, assignments: Sequence[Sequence[int]]
) -> list[PartitionRecord] | ApiError:
    """The records of new partitions with indexes from `first_partition_id` on. All active replicas are in sync at
    first, because a new partition has no records. Returns an error if all brokers of a partition are fenced or in
    controlled shutdown."""
    records = []
    for partition_id, replicas in enumerate(assignments, first_partition_id):
        isr = tuple(replica for replica in replicas if view.image.cluster.is_active(replica))
        if not isr:
            return ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {partition_id}"
                " are fenced or in controlled shutdown.",
            )
        partition = PartitionRegistration(
            replicas=tuple(replicas),
            isr=isr,
            leader=NO_LEADER,
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(view.default_directory(replica) for replica in replicas),
        )
        may_lead = view.eligibility_of(partition)
        leader = next((replica for replica in isr if may_lead(replica)), NO_LEADER)
        records.append(partition._replace(leader=leader).to_record(topic_id, partition_id))
    return records


# Placement


def place_replicas(
    brokers: Iterable[Broker], partitions_count: int, replication_factor: int, random: Random
) -> list[list[int]]:
    """Choose the brokers of each partition's replicas, the preferred leader first.

    `replication_factor` is at most the number of brokers. A fenced broker gets a replica only if there are too few
    others. Placement begins at a random broker, so that the leaders of many topics with one partition spread over
    brokers.
    """
    all_brokers = sorted(brokers)
    serving = alternate_racks([broker for broker in all_brokers if not broker.fenced], random)
    fenced = alternate_racks([broker for broker in all_brokers if broker.fenced], random)
    assert replication_factor <= len(serving) + len(fenced), "more replicas than brokers"
    return [replicas_of(index, serving, fenced, replication_factor) for index in range(partitions_count)]


def alternate_racks(brokers: Sequence[Broker], random: Random) -> list[Broker]:
    """The brokers in an order in which neighbours are in different racks if possible."""
    racks: dict[str | None, list[Broker]] = {}
    for broker in rotated_brokers(brokers, random.randrange(len(brokers)) if brokers else 0):
        racks.setdefault(broker.rack, []).append(broker)
    striped: list[Broker] = []
    for row in range(max(map(len, racks.values()), default=0)):
        striped.extend(members[row] for members in racks.values() if row < len(members))
    return striped


def replicas_of(index: int, serving: list[Broker], fenced: list[Broker], replication_factor: int) -> list[int]:
    """Choose the brokers of one partition's replicas, the preferred leader first. Successive partitions get successive
    brokers of `serving` as leaders; the order of the followers changes after each round.
    """
    candidates: list[Broker] = []
    if serving:
        leader, *others = rotated_brokers(serving, index % len(serving))
        candidates = [leader, *rotated_brokers(others, index // len(serving) % max(1, len(others)))]
    candidates += rotated_brokers(fenced, index % max(1, len(fenced)))
    chosen: list[Broker] = []
    for broker in candidates:
        if broker.rack not in (other.rack for other in chosen):
            chosen.append(broker)
    chosen += [broker for broker in candidates if broker not in chosen]
    return [broker.id for broker in chosen[:replication_factor]]


def rotated_brokers(items: Sequence[Broker], count: int) -> list[Broker]:
    return [*items[count:], *items[:count]]
