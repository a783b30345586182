"""I9: what a metadata log answers of its epochs is what its batches say, for those it has, those between, and later
ones: followers cut their logs by that, and candidates are judged by it. No snapshot is older than its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.broker.metadata.metadata_log import MetadataLog
from moldau.kraft.raft.log_view import OffsetAndEpoch
from tests.simulation.invariants.observation import LogContent, Node, Observation, StoredBatch, Violation

LATER = 2
"""So many epochs after its last one are asked for too."""


class MetadataEpochs:
    def __init__(self) -> None:
        self._contents: dict[tuple[int, int], LogContent] = {}
        self._glances: dict[tuple[int, int], object] = {}

    def check(self, seen: Observation) -> None:
        """Whenever an epoch has come or gone; what a node says that is losing its log does not count."""
        for node in seen.nodes:
            if node.is_losing_metadata:
                continue
            metadata_log = node.broker.quorum.opened.log
            log, place = metadata_log.log, (node.id, node.life)
            glance = (log.epochs.entries, log.log_start_offset, metadata_log.last_epoch)
            if log.failure is None and self._glances.get(place) != glance:
                self._glances[place] = (list(log.epochs.entries), *glance[1:])
                content = self._contents.setdefault(place, LogContent())
                content.read(node.disk, log)
                self._check(node, metadata_log, content.batches)

    @staticmethod
    def _check(node: Node, log: MetadataLog, batches: Sequence[StoredBatch]) -> None:
        batches = [each for each in batches if each.last_offset >= log.start_offset]
        snapshot = log.latest_snapshot
        last = batches[-1].leader_epoch if batches else snapshot.epoch if snapshot is not None else 0
        if log.last_epoch != last:
            raise Violation(f"node {node.id} says that its metadata ends in epoch {log.last_epoch}; it is {last}")
        if log.earliest_snapshot is not None and log.earliest_snapshot.end_offset < log.start_offset:
            raise Violation(
                f"node {node.id} has {log.earliest_snapshot}, and its metadata begins at {log.start_offset}"
            )
        # Of the epochs before the earliest snapshot nobody asks: whoever lacks these records is sent to the snapshot.
        earliest = log.earliest_snapshot
        for epoch in range(0 if earliest is None else earliest.epoch, last + LATER + 1):
            told, true = log.end_offset_for_epoch(epoch), end_of(epoch, log, batches)
            if told != true:
                raise Violation(f"node {node.id} says that epoch {epoch} of the metadata ends at {told}; it is {true}")


def end_of(epoch: int, log: MetadataLog, batches: Sequence[StoredBatch]) -> OffsetAndEpoch:
    """Of the newest one up to this; before the log there is the earliest snapshot."""
    until = [each for each in batches if each.leader_epoch <= epoch]
    if not until:
        earliest = log.earliest_snapshot
        return OffsetAndEpoch(log.start_offset, earliest.epoch if earliest is not None else 0)
    return OffsetAndEpoch(until[-1].last_offset + 1, until[-1].leader_epoch)
