"""I9: every log is whole: batches one after the other up to its end, each with its CRC, epochs rising; gaps are
those of compaction alone."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, Violation


class SoundLog:
    def __init__(self) -> None:
        self._checked: dict[tuple[int, int, PartitionKey], tuple[int, object]] = {}

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            batches, log = replica.content.batches, replica.partition.log
            newest = (len(batches), batches[-1].identity if batches else None)
            place = (replica.node_id, replica.life, key)
            if log.failure is not None or self._checked.get(place) == newest:
                continue
            start = max(0, min(self._checked.get(place, (0, None))[0], len(batches)) - 20)
            self._checked[place] = newest
            self._check(replica, start)
            end_offset = batches[-1].last_offset + 1 if batches else log.local_start_offset
            if end_offset != log.end_offset:
                raise Violation(f"{replica}: its batches end at {end_offset}, it says {log.end_offset}")

    @staticmethod
    def _check(replica: Replica, start: int) -> None:
        batches = replica.content.batches
        before = batches[start - 1] if start else None
        for batch in batches[start:]:
            if not batch.is_sound:
                raise Violation(f"{replica}: the CRC of {batch.identity} is wrong")
            if before is not None and (
                batch.base_offset <= before.last_offset
                or (batch.base_offset != before.last_offset + 1 and not replica.is_compacted)
                or batch.leader_epoch < before.leader_epoch
            ):
                raise Violation(f"{replica}: {batch.identity} follows {before.identity}")
            before = batch
