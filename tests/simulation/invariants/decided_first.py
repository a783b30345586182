"""I12: no marker lies in a log while the outcome of its transaction is not committed, and no completion is stored while
a partition of the transaction lacks its marker.

Both are judged within one term of the coordinator: what its own leader has written and not committed is not decided.
Markers are told apart by their epoch, which under protocol 1 several transactions share: of those only a partition that
never had a marker of the epoch is found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from moldau.broker.config.internal_topics import TRANSACTION_STATE_TOPIC
from moldau.coordinator.transaction.events import EPOCH_BUMP_VERSION
from moldau.coordinator.transaction.records import change_of
from moldau.coordinator.transaction.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, Transaction
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_reader import records_of
from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, StoredBatch, Violation

Place: TypeAlias = tuple[int, int, PartitionKey]
Decision: TypeAlias = tuple[int, int]
"""Producer id and epoch, as markers have them."""
COMPLETED: Final = (COMPLETE_COMMIT, COMPLETE_ABORT)


class Marked(NamedTuple):
    """How far the log of a replica was looked at, and the markers in it."""

    last: StoredBatch
    decisions: dict[Decision, None]


class DecidedFirst:
    def __init__(self) -> None:
        self._marked: dict[Place, Marked] = {}
        self._anywhere: dict[Decision, None] = {}
        """Every marker that any replica had."""
        self._walked: dict[Place, StoredBatch] = {}
        self._partitions: dict[Decision, Iterable[tuple[str, int]]] = {}

    def check(self, seen: Observation) -> None:
        coordinators = []
        for key, replica in seen.all_replicas():
            if replica.partition.log.failure is not None or not replica.content.batches:
                continue
            if replica.partition.topic == TRANSACTION_STATE_TOPIC:
                coordinators.append((key, replica))
            else:
                self._take_markers((replica.node_id, replica.life, key), replica)
        for key, replica in coordinators:
            assigned = seen.assigned(key)
            is_current = assigned is not None and assigned.leader_epoch == replica.partition.leader_epoch
            if replica.partition.is_leader and is_current:  # a deposed leader does not hear what its successor decides
                self._check_coordinator(seen, key, replica)

    def _take_markers(self, place: Place, replica: Replica) -> None:
        before, batches = self._marked.get(place), replica.content.batches
        decisions = {} if before is None else before.decisions
        new = []
        for batch in reversed(batches):
            if before is not None and batch is before.last:
                break
            new.append(batch)
        else:
            if not replica.is_compacted:
                decisions = {}  # the log was cut, or is new
        for batch in new:
            if batch.is_marker:
                decisions[batch.producer_id, batch.producer_epoch] = None
                self._anywhere[batch.producer_id, batch.producer_epoch] = None
        self._marked[place] = Marked(batches[-1], decisions)

    def _check_coordinator(self, seen: Observation, key: PartitionKey, leader: Replica) -> None:
        place, batches = (leader.node_id, leader.life, key), leader.content.batches
        last, term, new = self._walked.get(place), leader.partition.leader_epoch, []
        for batch in reversed(batches):
            if batch is last or (last is not None and batch.last_offset <= last.last_offset and leader.is_compacted):
                break
            new.append(batch)
        self._walked[place] = batches[-1]
        for batch in reversed(new):
            for transaction in transactions_in(leader, batch):
                decision = transaction.producer_id, transaction.producer_epoch
                if transaction.is_prepared:
                    self._partitions[decision] = transaction.partitions
                elif transaction.state in COMPLETED and batch.leader_epoch == term:
                    self._check_completion(seen, leader, decision)
        for batch in reversed(batches):
            if batch.last_offset < leader.partition.high_watermark or batch.leader_epoch != term:
                break
            for transaction in transactions_in(leader, batch):
                decision = transaction.producer_id, transaction.producer_epoch
                is_unique = transaction.client_version >= EPOCH_BUMP_VERSION
                if transaction.is_prepared and is_unique and decision in self._anywhere:
                    raise Violation(f"{leader}: producer {decision} has a marker, and its outcome is not committed")

    def _check_completion(self, seen: Observation, coordinator: Replica, decision: Decision) -> None:
        for topic_name, index in self._partitions.get(decision, ()):
            topic = seen.image.topics.by_name(topic_name)
            assigned = None if topic is None else topic.partitions.get(index)
            if topic is None or assigned is None:
                continue
            for node in seen.nodes:
                partition = node.broker.replicas.get(topic_name, index)
                if partition is None or not partition.is_leader or partition.leader_epoch != assigned.leader_epoch:
                    continue
                marked = self._marked.get((node.id, node.life, (topic.id, index)))
                # A replica whose disk has rotted is not looked at: what was noted of it may be of an earlier moment.
                if marked is None or marked.last.last_offset + 1 != partition.log.end_offset:
                    continue
                if decision not in marked.decisions:
                    raise Violation(f"{coordinator}: producer {decision} is completed, {topic_name}-{index} unmarked")


def transactions_in(replica: Replica, batch: StoredBatch) -> list[Transaction]:
    path = f"{replica.partition.log.directory}/{batch.segment_offset:020d}.log"
    stored = bytes(replica.disk.peek(path)[batch.position : batch.position + batch.size])
    if not stored or not batch.is_sound:
        return []
    changes = [change_of(record) for record in records_of(stored, 0, parse_header(stored, 0))]
    return [change.value for change in changes if change is not None and change.value is not None]
