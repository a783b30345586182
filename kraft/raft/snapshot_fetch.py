"""The fetch of a snapshot in parts, for a node whose log ends before the leader's log starts (KIP-630)."""

from __future__ import annotations

from typing import cast

from moldau.kraft.raft.events import SnapshotFetched, SnapshotPart
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.outgoing_requests import fetch_snapshot_request
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest, ResponsePartitionSnapshot
from moldau.protocol.primitives import BytesLike


class SnapshotFetch:
    """The fetch of one snapshot.

    The follower begins another fetch where the response names another snapshot id or position.
    """

    def __init__(self, member: QuorumMember, snapshot_id: SnapshotId) -> None:
        self._member = member
        self._snapshot_id = snapshot_id
        self._position = 0
        """The position in the file: every byte before it has been received."""

    def request(self) -> FetchSnapshotRequest:
        """The request for the next part."""
        return fetch_snapshot_request(self._member, self._snapshot_id, self._position)

    def append_part(self, partition: ResponsePartitionSnapshot) -> bool:
        """Take the next part. False where the response is not the next part of this snapshot: the caller begins another
        fetch."""
        data = cast("BytesLike", partition.unaligned_records) or b""  # The response was decoded before.
        said = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        size = len(data)
        end_position = self._position + size
        is_next = said == self._snapshot_id and partition.position == self._position
        if not is_next or end_position > partition.size or (size == 0 and end_position < partition.size):
            return False
        self._member.put(SnapshotPart(said, self._position, data))
        self._position = end_position
        if end_position == partition.size:
            self._member.is_loading = True
            self._member.put(SnapshotFetched(said))
        return True
