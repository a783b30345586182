"""Loading of a snapshot into a metadata image."""

from __future__ import annotations

from typing import NamedTuple

from moldau.kraft.image.metadata_image import Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.snapshot.batches import SnapshotReading
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.primitives import BytesLike


class LoadedSnapshot(NamedTuple):
    """The metadata at the end of a snapshot, and the quorum that it names."""

    replay: Replay
    quorum: QuorumDescription


def load_snapshot(data: BytesLike, snapshot_id: SnapshotId) -> LoadedSnapshot:
    """Load a snapshot.

    With a million partitions that takes seconds: call it in an executor thread. Raises `MalformedMessage`.
    """
    reading, replay = SnapshotReading(data), Replay()
    replay.replay(reading.records(), Provenance(snapshot_id.end_offset, snapshot_id.epoch))
    return LoadedSnapshot(replay, reading.quorum)
