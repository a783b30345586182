"""P10 over both tiers: a reader of a compacted topic with remote storage, who begins at the start of the log, sees the
latest committed record of every key, and no record of a key whose latest record was a deletion that is gone.

For the present leader, which has read all metadata: what the segments hold that it reads, before the start of its local
part, and behind that its own log. Each record is the one that was committed at its offset.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, is_tiered, remote_partition
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.record_reader import records_of
from moldau.storage.tiered.metadata.leader_history import is_in_history
from moldau.storage.tiered.remote_lookup import log_key
from moldau.testing.simulation.storage import SimulatedBucket
from tests.simulation.invariants.compacted_tables import (
    CompactedTables,
    Keyed,
    Table,
    is_rotten_anywhere,
    keyed_records,
)
from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, Violation
from tests.simulation.tiering.local_starts import reader_of
from tests.simulation.tiering.remote_metadata import RemoteMetadata


class TieredTables:
    def __init__(self, bucket: SimulatedBucket) -> None:
        self._bucket = bucket
        self._tables = CompactedTables()
        """What was committed, and the same rule for the local part."""
        self._compared: dict[PartitionKey, object] = {}
        self._decoded: dict[bytes, dict[int, Keyed]] = {}
        """By segment id: its records, by offset. An object never changes."""

    def check(self, seen: Observation, metadata: RemoteMetadata) -> None:
        tiered = [
            (key, replica)
            for key, replica in seen.all_replicas()
            if replica.is_compacted and is_tiered(replica.partition) and replica.partition.log.failure is None
        ]
        if tiered:
            self._tables.check(seen)
        brokers = {node.id: node.broker for node in seen.nodes}
        for key, replica in tiered:
            table, reader = self._tables.table(key), reader_of(brokers[replica.node_id])
            if table is None or reader is None or not metadata.leaders.is_current(seen, key):
                continue
            followed = reader.get(remote_partition(replica.partition))
            is_leader = replica.partition.leadership is not None
            if followed is None or not is_leader or not self._has_all(seen, followed, metadata):
                continue
            if table.is_stale or table.has_gaps or is_rotten_anywhere(seen, replica):
                continue
            log = replica.partition.log
            local = tuple((each.base_offset, each.size) for each in log.segments[:-1])
            shape = (replica.node_id, replica.life, local, log.log_start_offset, followed.next_offset)
            if self._compared.get(key) != shape:
                self._compared[key] = shape
                self._compare(key, table, replica, followed)

    @staticmethod
    def _has_all(seen: Observation, followed: FollowedRemoteLog, metadata: RemoteMetadata) -> bool:
        """Whether a broker has read all committed records of the metadata."""
        index = followed.metadata_index
        is_read = followed.is_complete and followed.next_offset == metadata.end_offsets.get(index)
        return is_read and metadata.is_current(seen, index) and not followed.is_being_removed

    def _compare(self, key: PartitionKey, table: Table, replica: Replica, followed: FollowedRemoteLog) -> None:
        log = replica.partition.log
        start_offset, end_offset = log.log_start_offset, min(replica.partition.high_watermark, table.end_offset)
        held = {offset: each for offset, each in self._records(replica, followed) if offset < end_offset}
        for offset, record in held.items():
            if table.records.get(offset) != record:
                raise Violation(f"{replica} shows {record} at {offset}; committed is {table.records.get(offset)}")
        for offsets in table.offsets.values():
            latest = offsets[-1]
            if latest in held or not start_offset <= latest < end_offset:
                continue
            record = table.records[latest]
            if record.value is not None:
                raise Violation(f"{replica} shows no {record} at {latest}, the latest of its key, in any tier")
            back = [each for each in offsets if each in held]
            if back and not self._tables.is_missed(key, record.key):
                raise Violation(
                    f"{replica} has dropped the tombstone at {latest}, and shows {held[back[-1]]} at {back[-1]}"
                )

    def _records(self, replica: Replica, followed: FollowedRemoteLog) -> Iterator[tuple[int, Keyed]]:
        """What a reader from the start of the log is shown, aborted records included."""
        log = replica.partition.log
        next_offset, local_start_offset = log.log_start_offset, max(log.log_start_offset, log.local_start_offset)
        for segment in followed.remote_log.read_segments():
            if next_offset < local_start_offset and is_in_history(segment, log.end_offset, log.epochs.entries):
                records = self._decoded.get(segment.segment_id)
                if records is None:
                    stored = self._bucket.objects.get(log_key(followed.key, segment))
                    data = stored.data if stored is not None else b""
                    records = self._decoded[segment.segment_id] = dict(_decoded(data))
                for offset, record in records.items():
                    if next_offset <= offset < local_start_offset:
                        yield offset, record
                next_offset = max(next_offset, segment.last_offset + 1)
        for batch in replica.content.batches:
            if batch.base_offset >= local_start_offset and not batch.is_marker:
                yield from keyed_records(replica, batch)


def _decoded(data: bytes) -> Iterator[tuple[int, Keyed]]:
    for place, header in iterate_batches(data):
        for record in () if header.is_control else records_of(data, place, header):
            yield record.offset, Keyed(bytes(record.key or b""), None if record.value is None else bytes(record.value))
