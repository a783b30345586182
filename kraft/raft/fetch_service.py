"""How the leader answers fetches of its log: at once where there is something to say, else once there is.

A fetch vouches for everything before its offset, so it is what commits; it is looked at before it is answered.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.raft.events import RequestReceived, Respond, RespondWithRecords, RespondWithSnapshot
from kraft.raft.log_view import LogView, OffsetAndEpoch
from kraft.raft.member import QuorumMember
from kraft.raft.responses import fetch_response, fetch_snapshot_response
from kraft.raft.voters.voters import ReplicaKey
from kraft.snapshot.names import SnapshotId
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, PartitionSnapshot

VERSION_WITH_HIGH_WATERMARK = 18
"""Of Fetch: from here on it says which high watermark the replica knows, and a later one is news to it."""


class WaitingFetch(NamedTuple):
    event: RequestReceived
    partition: FetchPartition
    deadline_ms: int


class FetchService:
    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self._parked: dict[object, WaitingFetch] = {}
        """By replica, which has one at a time; by token where it has no id."""
        self.high_watermark = -1
        """Of this term; -1 until its first commit."""

    def fetch(self, event: RequestReceived, key: ReplicaKey, partition: FetchPartition) -> None:
        """A fetch that was found valid: what it asks for is in the log, up to its end."""
        request = event.request
        assert isinstance(request, FetchRequest)
        place = key if key.id >= 0 else event.token
        before = self._parked.pop(place, None)
        if before is not None:
            self._respond_empty(before)
        parked = WaitingFetch(event, partition, self._member.now_ms + max(0, request.max_wait_ms))
        if not self._respond_if_due(parked):
            self._parked[place] = parked

    def empty_response(self, event: RequestReceived) -> Respond:
        """The answer to a fetch after which this node leads no more."""
        response = fetch_response(
            self._member, event.listener, event.version, ErrorCode.NONE, high_watermark=self.high_watermark
        )
        return Respond(event.token, response)

    def respond_diverging(self, event: RequestReceived, diverging: OffsetAndEpoch) -> None:
        self._reply(event, diverging=diverging)

    def respond_snapshot(self, event: RequestReceived, snapshot: SnapshotId) -> None:
        self._reply(event, snapshot=snapshot)

    def recheck(self) -> None:
        """The log has grown, or more of it is committed, or time has passed."""
        for place, parked in list(self._parked.items()):
            if self._respond_if_due(parked):
                del self._parked[place]

    def deadline_ms(self) -> int | None:
        return min((parked.deadline_ms for parked in self._parked.values()), default=None)

    def end_term(self, error: ErrorCode) -> None:
        """This node does not lead any more."""
        for parked in self._parked.values():
            response = fetch_response(self._member, parked.event.listener, parked.event.version, error)
            self._member.put(Respond(parked.event.token, response))
        self._parked.clear()

    def fetch_snapshot(self, event: RequestReceived, partition: PartitionSnapshot) -> None:
        """DIVERGES: Apache Kafka 4.3.1 cannot write what is refused here, and answers UNKNOWN_SERVER_ERROR instead."""
        member, request = self._member, event.request
        assert isinstance(request, FetchSnapshotRequest)
        snapshot_id = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        size = member.log.snapshot_size(snapshot_id)
        error = ErrorCode.NONE
        if size is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= partition.position < size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        response = fetch_snapshot_response(
            member, event.listener, error, partition.snapshot_id, size=size or 0, position=partition.position
        )
        if error is not ErrorCode.NONE:
            member.put(Respond(event.token, response))
            return
        size_max = max(1, min(request.max_bytes, member.settings.fetch_size_max))
        member.put(RespondWithSnapshot(event.token, response, snapshot_id, partition.position, size_max))

    def _respond_if_due(self, parked: WaitingFetch) -> bool:
        event, partition = parked.event, parked.partition
        knows_less = event.version >= VERSION_WITH_HIGH_WATERMARK and partition.high_watermark < self.high_watermark
        if partition.fetch_offset < self._member.log.end_offset:
            self._send_records(event, partition)
        elif knows_less or self._member.now_ms >= parked.deadline_ms:
            self._respond_empty(parked)
        else:
            return False
        return True

    def _respond_empty(self, parked: WaitingFetch) -> None:
        self._reply(parked.event)

    def _send_records(self, event: RequestReceived, partition: FetchPartition) -> None:
        request = event.request
        assert isinstance(request, FetchRequest)
        size_max = max(0, min(request.max_bytes, partition.partition_max_bytes, self._member.settings.fetch_size_max))
        response = fetch_response(
            self._member, event.listener, event.version, ErrorCode.NONE, high_watermark=self.high_watermark
        )
        self._member.put(RespondWithRecords(event.token, response, partition.fetch_offset, size_max))

    def _reply(
        self, event: RequestReceived, *, diverging: OffsetAndEpoch | None = None, snapshot: SnapshotId | None = None
    ) -> None:
        response = fetch_response(
            self._member,
            event.listener,
            event.version,
            ErrorCode.NONE,
            high_watermark=self.high_watermark,
            diverging=diverging,
            snapshot=snapshot,
        )
        self._member.put(Respond(event.token, response))


def place_in_log(log: LogView, fetch_offset: int, last_fetched_epoch: int) -> SnapshotId | OffsetAndEpoch | None:
    """Where a replica that ends at this offset, with a record of this epoch, stands to the log.

    None: it has a prefix of it. A snapshot: it is behind the start. An offset and epoch: its log is another one; the
    epoch, and its end here, are the last that the two may have in common.
    """
    if fetch_offset == log.start_offset == 0 and last_fetched_epoch == 0:
        return None
    earliest, latest = log.earliest_snapshot, log.latest_snapshot
    if earliest is not None and latest is not None and is_behind(log, earliest, fetch_offset, last_fetched_epoch):
        return latest
    end = log.end_offset_for_epoch(last_fetched_epoch)
    return None if end.epoch == last_fetched_epoch and fetch_offset <= end.offset else end


def is_behind(log: LogView, earliest: SnapshotId, fetch_offset: int, last_fetched_epoch: int) -> bool:
    start_offset = log.start_offset
    is_other_start = fetch_offset == start_offset > 0 and last_fetched_epoch != earliest.epoch
    return fetch_offset < start_offset or is_other_start or last_fetched_epoch < earliest.epoch
