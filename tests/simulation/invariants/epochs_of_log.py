"""I4: what a replica knows of leader epochs is what its batches say: by it two replicas find where their logs part."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, Violation


class EpochsOfLog:
    def __init__(self) -> None:
        self._looked: dict[tuple[int, int, PartitionKey], tuple[object, int, object]] = {}
        """Of each log the epochs, and up to which batch they were compared."""

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            log, batches = replica.partition.log, replica.content.batches
            if log.failure is not None:
                continue
            place = (replica.node_id, replica.life, key)
            entries, newest = tuple(log.epochs.entries), batches[-1] if batches else None
            known, count, last = self._looked.get(place, (None, 0, None))
            if known != entries or count > len(batches) or (count and batches[count - 1] is not last):
                count = 0
            self._looked[place] = entries, len(batches), newest
            self._compare(replica, count)

    @staticmethod
    def _compare(replica: Replica, count: int) -> None:
        log = replica.partition.log
        entries, slot = log.epochs.entries, -1
        for batch in replica.content.batches[count:]:
            if batch.last_offset < log.log_start_offset:
                continue  # deleted
            offset = max(batch.base_offset, log.log_start_offset)
            while slot + 1 < len(entries) and entries[slot + 1].start_offset <= offset:
                slot += 1
            known = entries[slot].epoch if slot >= 0 else None
            if known != batch.leader_epoch:
                raise Violation(f"{replica}: {batch.identity} is of epoch {known} by its leader epochs {entries}")
