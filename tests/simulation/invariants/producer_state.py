"""I5: what a replica knows of producers is what its log says: the next leader tells a retry from a new batch by it."""

from __future__ import annotations

from moldau.protocol.record_batch import NO_SEQUENCE
from moldau.storage.producers.producer_state import NO_OFFSET
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
            if log.local_start_offset > 0:
                continue  # what was cut away at the front is still known
            expected = states_of(replica.content)
            known = {
                entry.producer_id: (entry.producer_epoch, entry.last_sequence, entry.open_transaction_offset)
                for entry in log.producers.entries.values()
            }
            if known != expected:
                different = {each for each in known.keys() | expected.keys() if known.get(each) != expected.get(each)}
                told = [(each, known.get(each), expected.get(each)) for each in sorted(different)]
                raise Violation(f"{replica}: (producer, known, in the log): {told[:3]}")


def states_of(content: LogContent) -> dict[int, tuple[int, int, int]]:
    """By producer id: epoch, last sequence, and first offset of the open transaction. A marker with a new epoch leaves
    no sequence."""
    states: dict[int, tuple[int, int, int]] = {}
    for batch in content.batches:
        if batch.producer_id < 0:
            continue
        epoch, last_sequence, opened = states.get(batch.producer_id, (-1, NO_SEQUENCE, NO_OFFSET))
        if not batch.is_marker:
            last_sequence = batch.last_sequence
            opened = batch.base_offset if batch.is_transactional and opened == NO_OFFSET else opened
        else:
            last_sequence = last_sequence if batch.producer_epoch == epoch else NO_SEQUENCE
            opened = NO_OFFSET
        states[batch.producer_id] = batch.producer_epoch, last_sequence, opened
    return states
