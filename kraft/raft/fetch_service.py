"""The leader's responses to fetches. The leader responds to a fetch as soon as it has records or a new high watermark
for the replica.

A fetch offset states that every record before it is durable on the replica. So a fetch may commit records: the leader
counts the offset before it responds.
"""

from __future__ import annotations

from moldau.kraft.quorum.voter_set import ReplicaKey
from moldau.kraft.raft.events import RequestReceived, Respond, RespondWithRecords, RespondWithSnapshot
from moldau.kraft.raft.log_view import LogView, OffsetAndEpoch
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.responses import fetch_response, fetch_snapshot_response
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest, PartitionSnapshot

VERSION_WITH_HIGH_WATERMARK = 18
"""The first version of Fetch in which a request has the high watermark that the replica knows.

The leader responds at once if its own high watermark is higher.
"""


class WaitingFetch(NamedTuple):
    """A fetch that has no response yet. At its deadline it gets an empty response."""

    event: RequestReceived
    partition: FetchPartition
    deadline_ms: int


class FetchService:
    """Answers the fetches of the metadata log during one term. Each replica has at most one waiting fetch."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self._parked: dict[object, WaitingFetch] = {}
        """The waiting fetches by replica key; by the token of the request if the request names no replica."""
        self.high_watermark = -1
        """The high watermark of this leader; -1 until its first commit in its own term."""

    def fetch(self, event: RequestReceived, key: ReplicaKey, partition: FetchPartition) -> None:
        """Respond to a fetch whose offset is in the leader's log, at once or at a later event.

        If the replica has a waiting fetch already, that fetch gets an empty response.
        """
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
        """The response without records to a fetch that committed the removal of this leader. The leader resigns."""
        response = fetch_response(
            self._member, event.listener, event.version, ErrorCode.NONE, high_watermark=self.high_watermark
        )
        return Respond(event.token, response)

    def respond_diverging(self, event: RequestReceived, diverging: OffsetAndEpoch) -> None:
        self._reply(event, diverging=diverging)

    def respond_snapshot(self, event: RequestReceived, snapshot: SnapshotId) -> None:
        self._reply(event, snapshot=snapshot)

    def answer_waiting_fetches(self) -> None:
        """Respond to the waiting fetches that can be answered now, or whose deadline has passed."""
        for place, parked in list(self._parked.items()):
            if self._respond_if_due(parked):
                del self._parked[place]

    def deadline_ms(self) -> int | None:
        return min((parked.deadline_ms for parked in self._parked.values()), default=None)

    def end_term(self, error: ErrorCode) -> None:
        """Respond to every waiting fetch with the error, because this node does not lead any more.

        The response has the new epoch.
        """
        for parked in self._parked.values():
            response = fetch_response(self._member, parked.event.listener, parked.event.version, error)
            self._member.put(Respond(parked.event.token, response))
        self._parked.clear()

    def fetch_snapshot(self, event: RequestReceived, partition: PartitionSnapshot) -> None:
        """Respond to a FetchSnapshot with bytes of the snapshot, or with an error.

        DIVERGES: Apache Kafka 4.3.1 cannot serialize the response to a position that is refused here, and answers
        UNKNOWN_SERVER_ERROR.
        """
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


def divergence_of_replica(
    log: LogView, fetch_offset: int, last_fetched_epoch: int
) -> SnapshotId | OffsetAndEpoch | None:
    """Compare a replica's log with the leader's `log`. The replica's log ends at `fetch_offset`, with the epoch
    `last_fetched_epoch`.

    Returns None if the replica's log is a prefix of the leader's: the same offset and epoch mean the same records
    before. Returns the id of the latest snapshot if the replica's log ends before the leader's log starts. Otherwise
    the logs diverge: returns the last epoch that both may share, with its end in the leader's log (KIP-595). That
    replaces Raft's search one entry at a time.
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
