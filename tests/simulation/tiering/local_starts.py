"""A local segment is deleted only after its copy is finished: what a log has no file of, and is not before its start,
lies in segments whose COPY_SEGMENT_FINISHED is committed, and that are not being deleted.

If retention or a client deletes records, a replica may lag behind with the start of its log, and what lies between
is in no file and no copy. The rule looks at topics that keep everything.
"""

from __future__ import annotations

from collections.abc import Set

from moldau.broker.node.node import Node as Broker
from moldau.broker.tiering.remote_log_metadata import RemoteLogMetadataReader
from moldau.broker.tiering.remote_partitions import is_tiered, remote_partition
from moldau.replication.partition import Partition
from moldau.storage.tiered.metadata.records import metadata_partition
from tests.simulation.invariants.observation import Observation, PartitionKey, Violation
from tests.simulation.tiering.remote_metadata import FINISHED, RemoteMetadata, covered_end


class LocalStarts:
    def __init__(self, trimmed: Set[str] = frozenset()) -> None:
        """`trimmed`: topics of which clients delete records."""
        self._trimmed = trimmed
        self._held: dict[tuple[int, int, PartitionKey], tuple[int, int, int]] = {}
        """By replica: local start, log start and number of records, with which the rule held."""

    def check(self, seen: Observation, metadata: RemoteMetadata) -> None:
        for node in seen.nodes:
            reader = reader_of(node.broker)
            count = reader.partition_count if reader is not None else None
            for partition in node.broker.replicas if count else ():
                if is_tiered(partition) and partition.log.failure is None and self._keeps_all(partition):
                    assert count
                    self._check(seen, metadata, partition, count, node.id, node.life)

    def _keeps_all(self, partition: Partition) -> bool:
        config = partition.log.config
        return config.retention_ms < 0 and config.retention_bytes < 0 and partition.topic not in self._trimmed

    def _check(
        self, seen: Observation, metadata: RemoteMetadata, partition: Partition, count: int, node_id: int, life: int
    ) -> None:
        log, key = partition.log, remote_partition(partition)
        index = metadata_partition(key, count)
        place = (node_id, life, (key.topic_id, key.partition))
        held = (log.local_start_offset, log.log_start_offset, metadata.end_offsets.get(index, 0))
        if self._held.get(place) == held or log.local_start_offset <= log.log_start_offset:
            return
        if not metadata.is_current(seen, index):
            return
        finished = [each for each in metadata.of(key) if each.state is FINISHED]
        copied_end = covered_end(finished, log.log_start_offset)
        if copied_end < log.local_start_offset:
            raise Violation(
                f"{partition.topic}-{partition.index} on node {node_id} has no file of offsets {copied_end} to"
                f" {log.local_start_offset}, and no copy of them is finished"
            )
        self._held[place] = held


def reader_of(broker: Broker) -> RemoteLogMetadataReader | None:
    return broker.tiering.reader if broker.tiering is not None else None
