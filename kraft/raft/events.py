"""The events that the Raft machine takes and the effects that it requests.

Persist, then act: an effect that requires something to be durable is never an effect of the step that asks for the
durability. It is an effect of the later step that gets the result, so that code with the wrong order cannot be written:

    SaveElection      ⟶  ElectionSaved    before the vote counts, and before any message leaves in its epoch
    Append            ⟶  LogAppended      before the end of the log is known
    AppendFetched     ⟶  LogAppended      before the end of the log is known
    (a sync)          ⟶  LogFlushed       before a copy counts: the leader's own, and a follower's at its next Fetch
    TruncateLog       ⟶  LogTruncated     before the follower fetches again
    CompleteSnapshot  ⟶  SnapshotLoaded   before the follower fetches from its end

The node carries out effects in the order in which they come. The event that follows an Append, AppendFetched or
TruncateLog may be passed to the machine while later effects of the same list are still to be carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.raft.election_state import ElectionState
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from moldau.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from moldau.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from moldau.protocol.messages.vote import VoteRequest, VoteResponse
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_builder import Record

PeerRequest: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | UpdateRaftVoterRequest
)
"""The requests that members of the quorum send to one another."""
QuorumRequest: TypeAlias = PeerRequest | DescribeQuorumRequest | AddRaftVoterRequest | RemoveRaftVoterRequest
"""The requests that the machine responds to."""
QuorumResponse: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | UpdateRaftVoterResponse
    | DescribeQuorumResponse
    | AddRaftVoterResponse
    | RemoveRaftVoterResponse
)
OutgoingRequest: TypeAlias = PeerRequest | AddRaftVoterRequest | RemoveRaftVoterRequest | ApiVersionsRequest
"""The requests that the machine sends."""
IncomingResponse: TypeAlias = QuorumResponse | ApiVersionsResponse


class Destination(NamedTuple):
    """The node to which a request is sent. `node_id` is negative for a bootstrap server, of which only the address is
    known."""

    node_id: int
    host: str
    port: int


# Events


class Started(NamedTuple):
    """The node has read its log and quorum-state. It is the first event."""


class ElectionSaved(NamedTuple):
    """The election of a `SaveElection` is durable in quorum-state."""

    election: ElectionState


class LogAppended(NamedTuple):
    """The log now ends at this offset, because the leader's own records or fetched records were appended.

    `descriptions` has the quorum as the appended control records describe it, each with the base offset of its batch.
    """

    end_offset: int
    descriptions: Sequence[tuple[int, QuorumDescription]] = ()


class LogTruncated(NamedTuple):
    """The log was truncated and now ends at this offset."""

    end_offset: int


class LogFlushed(NamedTuple):
    """The log is durable up to this offset, exclusive."""

    end_offset: int


class RequestReceived(NamedTuple):
    """A request of a peer, or of a client about the quorum. The machine answers it once, by a `Respond` with the same
    token.

    Only a Fetch that names no other partition than that of the metadata log is passed to the machine. `listener` is the
    name of the listener at which the request arrived, so that the response can name the leader's address at that
    listener.
    """

    token: object
    request: QuorumRequest
    version: int
    listener: str = ""


class ResponseReceived(NamedTuple):
    """The outcome of a `Send`. Every `Send` has exactly one such event. `request` is the object that was sent."""

    to: Destination
    request: OutgoingRequest
    response: IncomingResponse | None
    """The response; None if the request timed out or the connection failed."""
    is_refused: bool = False
    """Whether the connection was refused or reset, so that the peer's process has ended. False for a timeout."""


class DeadlineReached(NamedTuple):
    """The time that `next_deadline_ms` returned has come.

    The machine ignores an event that comes early, and tolerates one that comes late.
    """


class SnapshotLoaded(NamedTuple):
    """The fetched snapshot has replaced the log, which now starts and ends at the snapshot's end offset.

    `quorum` has the kraft.version and the voters that the snapshot names.
    """

    snapshot_id: SnapshotId
    quorum: QuorumDescription


class SnapshotRefused(NamedTuple):
    """The fetched snapshot was malformed, or the disk had no room for it. The file has been removed."""

    snapshot_id: SnapshotId


class Resign(NamedTuple):
    """The controller of this epoch failed, so that this node must not lead any more.

    It is ignored unless this node leads in the epoch.
    """

    epoch: int


class RaiseVersion(NamedTuple):
    """The controller of this epoch decided to raise kraft.version. It is ignored unless this node leads in the
    epoch."""

    epoch: int
    version: int


class Stop(NamedTuple):
    """A clean stop has begun: a leader resigns, and this node never becomes a candidate again. The last effect is
    `Stopped`. `timeout_ms` limits how long a former leader tries to inform the other voters."""

    timeout_ms: int


Event: TypeAlias = (
    Started
    | ElectionSaved
    | LogAppended
    | LogTruncated
    | LogFlushed
    | RequestReceived
    | ResponseReceived
    | DeadlineReached
    | SnapshotLoaded
    | SnapshotRefused
    | RaiseVersion
    | Resign
    | Stop
)

# Effects


class SaveElection(NamedTuple):
    """Make the election durable in quorum-state, then report `ElectionSaved`. At most one is in progress."""

    election: ElectionState


class Append(NamedTuple):
    """Append one batch of control records with this leader epoch, and sync it. Report `LogAppended` after the append
    and `LogFlushed` after the sync."""

    epoch: int
    records: Sequence[Record]


class AppendFetched(NamedTuple):
    """Append the leader's batches unchanged, and sync them. Report `LogAppended` after the append and `LogFlushed`
    after the sync. The first batch must begin at the end of the log, and none may have a later epoch than
    `leader_epoch`: everything after the last valid batch is dropped. If no batch is valid, `LogAppended` reports the
    unchanged end."""

    records: BytesLike
    leader_epoch: int


class TruncateLog(NamedTuple):
    """Remove the records from this offset on, then report `LogTruncated`.

    The offset is never below the high watermark.
    """

    end_offset: int


class Send(NamedTuple):
    """Send a request in the latest version that both sides support. Report `ResponseReceived`, with a response or
    without one."""

    to: Destination
    request: OutgoingRequest
    timeout_ms: int


class Respond(NamedTuple):
    """Send the response to the request with this token."""

    token: object
    response: QuorumResponse


class RespondWithRecords(NamedTuple):
    """Send the response with at least one batch of the log from `fetch_offset` on as the records of its one
    partition."""

    token: object
    response: FetchResponse
    fetch_offset: int
    size_max: int
    """The most bytes of batches to send. The first batch may be larger."""


class RespondWithSnapshot(NamedTuple):
    """Send the response with at most `size_max` bytes of a snapshot, from `position` on, in its one partition."""

    token: object
    response: FetchSnapshotResponse
    snapshot_id: SnapshotId
    position: int
    size_max: int


class WriteSnapshotPart(NamedTuple):
    """Write bytes of a snapshot that is being fetched. A write at position 0 begins the file again."""

    snapshot_id: SnapshotId
    position: int
    data: BytesLike


class CompleteSnapshot(NamedTuple):
    """Make the completely fetched snapshot durable, replace the log by it, and load it. Then report `SnapshotLoaded` or
    `SnapshotRefused`."""

    snapshot_id: SnapshotId


class Lead(NamedTuple):
    """Start a controller, because this node leads from now on.

    The effect comes after the append of the first batch of the term.
    """

    epoch: int


class Follow(NamedTuple):
    """End the controller of an earlier epoch, because this node follows. `leader_id` is -1 if no leader is known."""

    epoch: int
    leader_id: int


class Commit(NamedTuple):
    """Apply the records before this offset, which are committed: each later leader has them (leader completeness)."""

    high_watermark: int


class Stopped(NamedTuple):
    """End the process, because the clean stop is complete: every voter that can be reached knows that this node has
    resigned."""


Effect: TypeAlias = (
    SaveElection
    | Append
    | AppendFetched
    | TruncateLog
    | Send
    | Respond
    | RespondWithRecords
    | RespondWithSnapshot
    | WriteSnapshotPart
    | CompleteSnapshot
    | Lead
    | Follow
    | Commit
    | Stopped
)
