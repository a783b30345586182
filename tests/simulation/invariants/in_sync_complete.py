"""I3, I7: every living member of the in-sync set, as the controller has it, holds all that was committed, durably if
that is asked: each of them may lead next.
"""

from __future__ import annotations

from tests.simulation.invariants.observation import Committed, Observation, Replica, StoredBatch, Violation


class InSyncComplete:
    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            assigned, committed = seen.assigned(key), seen.committed.get(key)
            if assigned is None or committed is None or not replica.is_registered:
                continue
            if replica.node_id not in (*assigned.isr, *assigned.eligible_leader_replicas):
                continue
            if replica.partition.log.failure is None:
                self._compare(committed, replica, seen)

    @staticmethod
    def _compare(committed: Committed, replica: Replica, seen: Observation) -> None:
        log = replica.partition.log
        if log.end_offset < committed.end_offset:
            raise Violation(f"{replica} is in sync and ends at {log.end_offset}; committed is {committed.end_offset}")
        for batch in reversed(replica.content.batches):
            if batch.last_offset < log.local_start_offset:
                return  # deleted, and its segment may be gone
            if batch.last_offset < committed.end_offset:
                known = committed.batches.get(batch.base_offset)
                if replica.is_compacted:
                    return
                if not committed.may_be(batch):
                    raise Violation(f"{replica} is in sync and holds {batch.identity} where committed is {known}")
                if seen.flushes and not is_durable(replica, batch):
                    raise Violation(f"{replica} is in sync, and {batch.identity} is committed and not durable there")
                return


def is_durable(replica: Replica, batch: StoredBatch) -> bool:
    data = replica.disk.peek_durable(f"{replica.partition.log.directory}/{batch.segment_offset:020d}.log")
    return bytes(data[batch.position : batch.position + len(batch.head)]) == batch.head
