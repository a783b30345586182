"""`retention.bytes` of a tiered topic counts both tiers, and each byte once: what a leader leaves when it moves the log
start is at least that large."""

from __future__ import annotations

from collections.abc import Set

from moldau.broker.tiering.remote_partitions import is_tiered
from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, Violation
from tests.simulation.tiering.remote_metadata import RemoteMetadata


class RetainedEnough:
    def __init__(self, trimmed: Set[str] = frozenset()) -> None:
        """`trimmed`: topics of which clients delete records."""
        self._trimmed = trimmed
        self._starts: dict[tuple[int, int, int, PartitionKey], int] = {}
        """By replica and leader epoch: the log start offset when it was looked at last."""

    def check(self, seen: Observation, metadata: RemoteMetadata) -> None:
        for key, replica in seen.all_replicas():
            partition, log = replica.partition, replica.partition.log
            if not is_tiered(partition) or partition.leadership is None or log.failure is not None:
                continue
            place = (replica.node_id, replica.life, partition.leader_epoch, key)
            before = self._starts.get(place, log.log_start_offset)
            self._starts[place] = log.log_start_offset
            if log.log_start_offset > before and partition.topic not in self._trimmed:
                self._check(seen, key, replica)

    @staticmethod
    def _check(seen: Observation, key: PartitionKey, leader: Replica) -> None:
        log, committed = leader.partition.log, seen.committed[key]
        if committed.unseen:
            return
        if log.config.retention_bytes < 0 and log.config.retention_ms < 0:
            raise Violation(f"{leader}: the log begins at {log.log_start_offset}, and its topic keeps everything")
        left = sum(each.size for base, each in committed.batches.items() if base >= log.log_start_offset)
        left += sum(
            each.size
            for each in leader.content.batches
            if each.base_offset >= max(committed.end_offset, log.log_start_offset)
        )
        if 0 <= left < log.config.retention_bytes and log.config.retention_ms < 0:
            raise Violation(
                f"{leader}: the log begins at {log.log_start_offset}: {left} bytes are left, and"
                f" {log.config.retention_bytes} are to be kept"
            )
