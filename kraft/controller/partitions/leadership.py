"""Changes of leaders and in-sync replicas after a broker, or one of its log directories, became available or failed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from moldau.kraft.controller.partition_index import Key
from moldau.kraft.controller.partitions.partition_change import Election, PartitionRules, RequestedChange, change_of
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.image.topics import NO_LEADER, PartitionRegistration, Topic
from moldau.protocol.records.metadata import PartitionChangeRecord

MayLead = Callable[[int], bool]
Changes: TypeAlias = Iterator[PartitionChangeRecord | None]
"""One element for each examined partition: the record that changes it, or None if the partition does not change.

All elements follow from the metadata at the time of the call: replaying the first records changes none of the later
ones.
"""


def rules_of(view: ControllerView, topic: Topic, may_lead: MayLead) -> PartitionRules:
    """The rules for changes of the topic's partitions. `may_lead` says which brokers may lead.

    `min_in_sync` of the rules is 0 if the cluster has no eligible leader replicas.
    """
    has_eligible = view.has_eligible_replicas
    return PartitionRules(
        may_lead, view.min_in_sync(topic) if has_eligible else 0, has_eligible, view.default_directory
    )


def election_of(view: ControllerView, topic: Topic) -> Election:
    return Election.UNCLEAN if view.allows_unclean(topic.name) else Election.ONLINE


def changes_without(view: ControllerView, broker_id: int) -> Changes:
    """The changes that take the leadership of all partitions from the broker, and remove it from every in-sync set of
    which it is not the last member."""
    return _changes(
        view,
        tuple(view.by_broker.partitions_led_or_in_sync(broker_id)),
        lambda partition: RequestedChange(isr=isr_without(partition, broker_id)),
        except_broker=broker_id,
    )


def changes_without_directories(view: ControllerView, broker_id: int, lost: Collection[bytes]) -> Changes:
    """The changes of partitions whose replica on the broker is in one of the failed log directories `lost`: the replica
    loses the leadership, and leaves the in-sync set if it is not the last member."""

    def wanted_of(partition: PartitionRegistration) -> RequestedChange | None:
        is_lost = partition.directory_of(broker_id) in lost
        return RequestedChange(isr=isr_without(partition, broker_id)) if is_lost else None

    return _changes(
        view, tuple(view.by_broker.partitions_led_or_in_sync(broker_id)), wanted_of, except_broker=broker_id
    )


def isr_without(partition: PartitionRegistration, broker_id: int) -> list[int]:
    return [replica for replica in partition.isr if replica != broker_id]


def changes_after_loss(view: ControllerView, broker_id: int) -> Changes:
    """The changes that are made when a broker restarts and may have lost records.

    The broker is removed from the eligible leader replicas and from every in-sync set, even if it is the last member.
    """
    keys = dict.fromkeys(
        (*view.by_broker.partitions_led_or_in_sync(broker_id), *view.by_broker.partitions_eligible(broker_id))
    )
    return _changes(
        view,
        tuple(keys),
        lambda partition: RequestedChange(isr=isr_without(partition, broker_id), lost=(broker_id,)),
        except_broker=broker_id,
    )


def changes_with(view: ControllerView, broker_id: int) -> Changes:
    """The changes that are made when a broker is about to be unfenced: elections in all partitions without a leader, in
    which the broker may be elected.

    A partition may still have the broker as its leader from before a restart: a former controller failed before it had
    written all changes for that restart. Such a partition gets the same leader again, in a new leader epoch.
    """
    led = [
        PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id, leader=broker_id)
        for topic_id, partition_id in view.by_broker.partitions_led(broker_id)
    ]
    leaderless = tuple(view.by_broker.leaderless)
    return chain(led, _changes(view, leaderless, lambda partition: RequestedChange(), with_broker=broker_id))


def changes_of_leaderless(view: ControllerView) -> Changes:
    """Elections for partitions that have no leader although a replica could lead: the former controller failed before
    it had elected all leaders, or unclean elections have been allowed for their topic."""
    return _changes(view, tuple(view.by_broker.leaderless), lambda partition: RequestedChange())


def _changes(
    view: ControllerView,
    keys: Iterable[Key],
    wanted_of: Callable[[PartitionRegistration], RequestedChange | None],
    *,
    except_broker: int = NO_LEADER,
    with_broker: int = NO_LEADER,
) -> Changes:
    """The changes of the partitions with these keys. `wanted_of` returns the change of a partition, or None if the
    partition does not change.

    `except_broker` is a broker that is about to be fenced, `with_broker` one that is about to be unfenced; -1 for none.
    """
    of_topic: Topic | None = None
    for topic, partition_id, partition in view.partitions(keys):
        wanted = wanted_of(partition)
        if wanted is None:
            yield None
            continue
        may_lead = _may_lead(view, partition, except_broker, with_broker)
        if topic is not of_topic:  # The settings of a topic are looked up once: its partitions come one after another.
            of_topic, rules, election = topic, rules_of(view, topic, may_lead), election_of(view, topic)
        wanted = wanted._replace(election=election)
        yield change_of(topic.id, partition_id, partition, wanted, rules._replace(may_lead=may_lead))


def _may_lead(view: ControllerView, partition: PartitionRegistration, except_broker: int, with_broker: int) -> MayLead:
    may_lead_now = view.eligibility_of(partition)
    cluster = view.image.cluster

    def may_lead(replica: int) -> bool:
        if replica == except_broker:
            return False
        if replica == with_broker:
            return cluster.has_online_directory(replica, partition.directory_of(replica))
        return may_lead_now(replica)

    return may_lead
