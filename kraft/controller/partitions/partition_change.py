"""The record that changes a partition when its in-sync set, its replicas or the brokers that may lead it change.

    requested: replicas, in-sync set
      │  a reassignment ends when every added replica is in sync, and one remains that is not removed
      ▼
    eligible leader replicas (KIP-966): none while enough are in sync; else those that left the set with all records
      ▼
    the leader: the current one, while it may lead; else the first replica in sync, or eligible, that may lead;
                else the last known leader, if it is the only one; else, if allowed, any replica: an unclean
                election
      ▼
    one record of the differences, or none

An unclean leader is the only in-sync replica, and is recovering until it reports that it has recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Final

from moldau.kraft.image.topics import LEADER_UNCHANGED, NO_LEADER, RECOVERY_STATE_UNCHANGED, PartitionRegistration
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.metadata import PartitionChangeRecord

RECOVERED: Final = 0
RECOVERING: Final = 1


class Election(Enum):
    """Which replicas an election may choose from."""

    ONLINE = auto()
    PREFERRED = auto()
    """Elect an in-sync replica, and prefer the preferred leader to the current leader."""
    UNCLEAN = auto()
    """Elect an in-sync replica. If none may lead, elect a replica that is not in sync."""


class PartitionRules(NamedTuple):
    """The settings and the states of brokers on which a change of a partition depends."""

    may_lead: Callable[[int], bool]
    min_in_sync: int
    has_eligible_replicas: bool
    default_directory: Callable[[int], bytes]


class RequestedChange(NamedTuple):
    """The fields that a request changes; None leaves a field unchanged."""

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    recovery_state: int | None = None
    election: Election = Election.ONLINE
    lost: Collection[int] = ()
    """Brokers whose replicas may have lost records, so that they are no longer eligible leader replicas."""
    directories: Mapping[int, bytes] = {}
    """The new log directories of replicas: directory id by broker id."""


class PartitionTarget(NamedTuple):
    """The replicas and the in-sync set of a partition after a change, without its leader."""

    isr: list[int]
    replicas: list[int]
    removing: list[int]
    adding: list[int]
    eligible: list[int]
    last_known: list[int]


class ElectionResult(NamedTuple):
    """The leader that an election chose; -1 if there is none."""

    leader: int
    is_unclean: bool = False


def change_of(
    topic_id: bytes, partition_id: int, partition: PartitionRegistration, wanted: RequestedChange, rules: PartitionRules
) -> PartitionChangeRecord | None:
    """The record of a requested change, with its effects on the eligible leader replicas and the leader; None if
    nothing changes."""
    target = target_of(partition, wanted, rules)
    elected = elect_leader(partition, target, wanted.election, rules)
    record = PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
    if elected.leader != partition.leader:
        record.leader = elected.leader
    elif not set(partition.replicas) <= set(target.replicas):
        record.leader = partition.leader  # A new leader epoch makes the leader stop counting the removed replica.
    if elected.leader in target.eligible:
        target = with_eligible_leader(target, elected.leader, rules)
    isr = [elected.leader] if elected.is_unclean else target.isr
    if tuple(isr) != partition.isr and (isr or rules.has_eligible_replicas):
        record.isr = isr
    note_eligible(record, partition, target, elected, rules)
    note_assignment(record, partition, target, wanted, rules)
    recovery_state = recovery_state_of(partition, wanted, elected)
    if recovery_state != partition.leader_recovery_state:
        record.leader_recovery_state = recovery_state
    return None if is_empty(record) else record


def target_of(partition: PartitionRegistration, wanted: RequestedChange, rules: PartitionRules) -> PartitionTarget:
    target = PartitionTarget(
        isr=list(wanted_or_present(wanted.isr, partition.isr)),
        replicas=list(wanted_or_present(wanted.replicas, partition.replicas)),
        removing=list(wanted_or_present(wanted.removing, partition.removing_replicas)),
        adding=list(wanted_or_present(wanted.adding, partition.adding_replicas)),
        eligible=list(partition.eligible_leader_replicas),
        last_known=list(partition.last_known_elr),
    )
    if target.removing or target.adding:
        target = with_reassignment_ended(target)
    return with_eligible_replicas(partition, target, wanted, rules) if rules.has_eligible_replicas else target


def wanted_or_present(wanted: Sequence[int] | None, present: Sequence[int]) -> Sequence[int]:
    return present if wanted is None else wanted


def with_reassignment_ended(target: PartitionTarget) -> PartitionTarget:
    """A copy of `target` in which the partition's reassignment is ended. If an added replica is not in sync, or if no
    in-sync replica would remain, `target` is returned as it is."""
    isr = [replica for replica in target.isr if replica not in target.removing]
    replicas = [replica for replica in target.replicas if replica not in target.removing]
    if not isr or not replicas or not set(target.adding) <= set(isr):
        return target
    return target._replace(isr=isr, replicas=replicas, removing=[], adding=[])


def with_eligible_replicas(
    partition: PartitionRegistration, target: PartitionTarget, wanted: RequestedChange, rules: PartitionRules
) -> PartitionTarget:
    """A copy of `target` (the partition's replicas and in-sync set after the change) with the eligible leader replicas
    that result from the change (KIP-966).

    If the in-sync set satisfies min.insync.replicas, there are none. While it is smaller, a replica that leaves the
    in-sync set becomes eligible, unless it may have lost records (`wanted.lost`): no record is committed meanwhile, so
    the replica has every committed record.
    """
    if has_enough_in_sync(target, rules):
        return target._replace(eligible=[], last_known=[])
    candidates = list(dict.fromkeys([*partition.eligible_leader_replicas, *partition.isr]))
    outside = [replica for replica in candidates if replica not in target.isr and replica in target.replicas]
    return target._replace(eligible=[replica for replica in outside if replica not in wanted.lost])


def with_eligible_leader(target: PartitionTarget, leader: int, rules: PartitionRules) -> PartitionTarget:
    """A copy of `target` in which an eligible leader replica is elected. This leader is then the only in-sync replica.

    If the leader alone satisfies min.insync.replicas, it commits records that the other eligible replicas lack, so they
    are no longer eligible.
    """
    target = target._replace(isr=[leader])
    eligible = [replica for replica in target.eligible if replica != leader]
    return target._replace(eligible=[] if has_enough_in_sync(target, rules) else eligible)


def has_enough_in_sync(target: PartitionTarget, rules: PartitionRules) -> bool:
    """Whether the in-sync set satisfies min.insync.replicas, so that records are committed."""
    return len(target.isr) >= min(rules.min_in_sync, len(target.replicas))


def elect_leader(
    partition: PartitionRegistration, target: PartitionTarget, election: Election, rules: PartitionRules
) -> ElectionResult:
    """Elect an in-sync replica, or an eligible leader replica if none is in sync. If none of these may lead, elect the
    last known leader, or any replica if the election may be unclean.
    """
    may_lead = rules.may_lead
    safe = target.eligible if rules.has_eligible_replicas and not target.isr else target.isr
    first = target.replicas[0] if election is Election.PREFERRED else partition.leader
    for replica in (first, partition.leader, *target.replicas):
        if replica in safe and may_lead(replica):
            return ElectionResult(replica)
    if may_elect_last_known(partition, target, rules):
        return ElectionResult(partition.last_known_elr[0], is_unclean=True)
    if election is Election.UNCLEAN:
        unclean = next((replica for replica in target.replicas if may_lead(replica)), NO_LEADER)
        return ElectionResult(unclean, is_unclean=unclean != NO_LEADER)
    return ElectionResult(NO_LEADER)


def may_elect_last_known(partition: PartitionRegistration, target: PartitionTarget, rules: PartitionRules) -> bool:
    """Whether the last known leader may be elected, because no replica is in sync or eligible, so that no replica has
    more records."""
    return (
        rules.has_eligible_replicas
        and not target.isr
        and not target.eligible
        and len(partition.last_known_elr) == 1
        and rules.may_lead(partition.last_known_elr[0])
    )


def note_eligible(
    record: PartitionChangeRecord,
    partition: PartitionRegistration,
    target: PartitionTarget,
    elected: ElectionResult,
    rules: PartitionRules,
) -> None:
    """Set the eligible leader replicas of the record if they change.

    The last known leader is set when the in-sync set becomes empty, and cleared when it has members again.
    """
    eligible = [] if elected.is_unclean or not rules.has_eligible_replicas else target.eligible
    if tuple(eligible) != partition.eligible_leader_replicas:
        record.eligible_leader_replicas = eligible
    if record.isr is None:
        return
    if not record.isr and partition.leader != NO_LEADER:
        if partition.last_known_elr != (partition.leader,):
            record.last_known_elr = [partition.leader]
    elif record.isr and partition.last_known_elr:
        record.last_known_elr = []


def note_assignment(
    record: PartitionChangeRecord,
    partition: PartitionRegistration,
    target: PartitionTarget,
    wanted: RequestedChange,
    rules: PartitionRules,
) -> None:
    if tuple(target.replicas) != partition.replicas:
        record.replicas = target.replicas
    if tuple(target.removing) != partition.removing_replicas:
        record.removing_replicas = target.removing
    if tuple(target.adding) != partition.adding_replicas:
        record.adding_replicas = target.adding
    if record.replicas is None and not wanted.directories:
        return
    directories = [
        wanted.directories.get(replica)
        or (partition.directory_of(replica) if replica in partition.replicas else rules.default_directory(replica))
        for replica in target.replicas
    ]
    if tuple(directories) != partition.directories:
        record.directories = directories


def recovery_state_of(partition: PartitionRegistration, wanted: RequestedChange, elected: ElectionResult) -> int:
    if elected.is_unclean and elected.leader != partition.leader:
        return RECOVERING
    return partition.leader_recovery_state if wanted.recovery_state is None else wanted.recovery_state


def is_empty(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == LEADER_UNCHANGED
        and record.leader_recovery_state == RECOVERY_STATE_UNCHANGED
        and record.isr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )
