"""I5: what a replica knows of producers is what its log says: the next leader tells a retry from a new batch by it."""

from __future__ import annotations

from protocol.record_batch import NO_SEQUENCE
from tests.simulation.invariants.observation import LogContent, Observation, PartitionKey, Violation


class ProducerState:
    def __init__(self) -> None:
        self._looked: dict[tuple[int, int, PartitionKey], tuple[int, object]] = {}

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            log = replica.partition.log
            batches = replica.content.batches
            newest = (log.end_offset, batches[-1].identity if batches else None)
            place = (replica.node_id, replica.life, key)
            if self._looked.get(place) == newest or log.failure is not None or replica.partition.is_internal:
                continue
            self._looked[place] = newest
            if log.log_start_offset > 0:
                continue  # what was cut away at the front is still known
            expected = states_of(replica.content)
            known = {
                entry.producer_id: (entry.producer_epoch, entry.last_sequence)
                for entry in log.producers.entries.values()
            }
            if known != expected:
                different = {each for each in known.keys() | expected.keys() if known.get(each) != expected.get(each)}
                told = [(each, known.get(each), expected.get(each)) for each in sorted(different)]
                raise Violation(f"{replica}: (producer, known, in the log): {told[:3]}")


def states_of(content: LogContent) -> dict[int, tuple[int, int]]:
    states: dict[int, tuple[int, int]] = {}
    for batch in content.batches:
        if batch.producer_id < 0:
            continue
        last_sequence = batch.last_sequence
        if batch.marker is not None:  # it has no sequence, and may move the epoch
            epoch, last_sequence = states.get(batch.producer_id, (batch.producer_epoch, NO_SEQUENCE))
            last_sequence = last_sequence if epoch == batch.producer_epoch else NO_SEQUENCE
        states[batch.producer_id] = batch.producer_epoch, last_sequence
    return states
