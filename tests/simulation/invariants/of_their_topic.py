"""I12: under a topic's id lies what was written for that topic, on every replica: nothing of a topic that had its name
before. What a client sent by name was written for any topic of that name.
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_reader import records_of
from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, StoredBatch, Violation
from tests.support.topic_writer import misplaced


class OfTheirTopic:
    """`names`: the topics whose records say what they were written for; other topics are not looked at."""

    def __init__(self, names: Mapping[bytes, str]) -> None:
        self._names = names
        self._looked: dict[tuple[int, int, PartitionKey], StoredBatch] = {}
        """Of each log the last batch that was looked at."""

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            log = replica.partition.log
            if key[0] not in self._names or log.failure is not None or not replica.content.batches:
                continue
            place = (replica.node_id, replica.life, key)
            batches, last = replica.content.batches, self._looked.get(place)
            self._looked[place] = batches[-1]
            for batch in reversed(batches):
                if batch is last:
                    break
                self._check(key[0], replica, batch)

    def _check(self, topic_id: bytes, replica: Replica, batch: StoredBatch) -> None:
        path = f"{replica.partition.log.directory}/{batch.segment_offset:020d}.log"
        stored = bytes(replica.disk.peek(path)[batch.position : batch.position + batch.size])
        if not stored or not batch.is_sound:
            return
        for record in records_of(stored, 0, parse_header(stored, 0)):
            wrong = misplaced(record.value or b"", topic_id, self._names)
            if wrong is not None:
                raise Violation(f"{replica} holds at {batch.base_offset} what does not belong there: {wrong}")
