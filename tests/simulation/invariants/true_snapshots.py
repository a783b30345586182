"""I4, I8: a snapshot of the metadata has its name once it is durable, and says of the cluster and of its voters what
the log says up to there.
"""

from __future__ import annotations

from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.snapshot.batches import load_snapshot
from moldau.kraft.snapshot.names import SnapshotId
from tests.simulation.invariants.equal_images import summary
from tests.simulation.invariants.observation import Node, Observation, Violation

KEPT = 200
"""Offsets of which it is remembered what was said there: snapshots are of the newest."""


class TrueSnapshots:
    def __init__(self) -> None:
        self._images: dict[int, MetadataImage] = {}
        """By end offset: what is there, as whoever was the first to show it has it."""
        self._quorums: dict[int, QuorumDescription] = {}
        self._checked: set[tuple[int, SnapshotId]] = set()

    def check(self, seen: Observation) -> None:
        for node in seen.nodes:
            self._learn(node)
        for node in seen.nodes:
            log = node.broker.quorum.opened.log
            for snapshot in log._snapshots:
                if snapshot.end_offset > 0 and (node.id, snapshot) not in self._checked:
                    self._checked.add((node.id, snapshot))
                    self._check(node, snapshot, f"{log.directory}/{snapshot.file_name}")

    def _learn(self, node: Node) -> None:
        quorum = node.broker.quorum
        end_offset = quorum.image.provenance.end_offset
        if end_offset not in self._images:
            self._images[end_offset] = quorum.image
            self._quorums[end_offset] = quorum.opened.history.description_at(end_offset)
            if len(self._images) > KEPT:
                oldest = next(iter(self._images))
                del self._images[oldest], self._quorums[oldest]

    def _check(self, node: Node, snapshot: SnapshotId, path: str) -> None:
        data = bytes(node.disk.peek(path))
        if bytes(node.disk.peek_durable(path)) != data:
            raise Violation(f"node {node.id} has the snapshot {path}, and it is not durable")
        loaded = load_snapshot(data, snapshot)
        image, quorum = self._images.get(snapshot.end_offset), self._quorums.get(snapshot.end_offset)
        if image is not None and summary(loaded.replay.image) != summary(image):
            raise Violation(f"node {node.id}: its snapshot up to {snapshot} has another image than there was")
        if quorum is not None and quorum.kraft_version > 0 and loaded.quorum != quorum:
            raise Violation(f"node {node.id}: its snapshot {snapshot} has {loaded.quorum}, the log {quorum}")
