"""I4, I5: below its high watermark every replica holds exactly what was committed, and was not deleted since.
Compacted logs are looked at by `compacted_tables`."""

from __future__ import annotations

from tests.simulation.invariants.observation import Committed, Observation, Replica, Violation


class CommittedPrefix:
    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            committed = seen.committed.get(key)
            if committed is not None and not replica.is_compacted and replica.partition.log.failure is None:
                self._compare(committed, replica)

    @staticmethod
    def _compare(committed: Committed, replica: Replica) -> None:
        content, end_offset = replica.content, min(replica.partition.high_watermark, committed.end_offset)
        while content.verified < len(content.batches):
            batch = content.batches[content.verified]
            if batch.last_offset >= end_offset:
                return
            known = committed.batches.get(batch.base_offset)
            is_deleted = batch.last_offset < replica.partition.log.log_start_offset
            if not is_deleted and not committed.may_be(batch):
                held = known.identity if known is not None else "nothing that begins there"
                raise Violation(f"{replica} holds {batch.identity} below its high watermark; committed is {held}")
            content.verified += 1
