"""A snapshot read into the state that it stands for."""

from __future__ import annotations

from typing import NamedTuple

from kraft.image.metadata_image import Provenance
from kraft.image.replay import Replay
from kraft.quorum.control_records import QuorumDescription
from kraft.snapshot.batches import SnapshotReading
from kraft.snapshot.names import SnapshotId
from protocol.primitives import BytesLike


class LoadedSnapshot(NamedTuple):
    replay: Replay
    quorum: QuorumDescription


def load_snapshot(data: BytesLike, snapshot_id: SnapshotId) -> LoadedSnapshot:
    """Seconds where there are a million partitions: not for the loop. Raises `MalformedMessage`."""
    reading, replay = SnapshotReading(data), Replay()
    replay.replay(reading.records(), Provenance(snapshot_id.end_offset, snapshot_id.epoch))
    return LoadedSnapshot(replay, reading.quorum)
