"""The events that the Raft machine takes and the effects that it requests.

Persist, then act: an effect that requires something to be durable is never an effect of the step that asks for the
durability. It is an effect of the later step that gets the result, so that code with the wrong order cannot be written:

    SaveElection      ⟶  ElectionSaved    before the vote counts, and before any message leaves in its epoch
    Append            ⟶  LogAppended      before the end of the log is known
    AppendFetched     ⟶  LogAppended      ...
    (a sync)          ⟶  LogFlushed       before a copy counts: the leader's own, and a follower's at its next Fetch
    TruncateLog       ⟶  LogTruncated     before the follower fetches again
    CompleteSnapshot  ⟶  SnapshotLoaded   before the follower fetches from its end

The shell carries out effects in the order in which they come. The event that follows an Append, AppendFetched or
TruncateLog may be fed to the machine while later effects of the same list are still to be carried out.
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
    """The address of a request. `node_id` is negative for a bootstrap server, of which only the address is known."""

    node_id: int
    host: str
    port: int


# Events


class Started(NamedTuple):
    """The node has read its log and quorum-state."""


class ElectionSaved(NamedTuple):
    """quorum-state is durable with the election of the SaveElection."""

    election: ElectionState


class LogAppended(NamedTuple):
    """The log now ends at this offset, with the leader's own records or with fetched ones.

    `descriptions`: the quorum as the appended control records describe it, each with the offset of its batch.
    """

    end_offset: int
    descriptions: Sequence[tuple[int, QuorumDescription]] = ()


class LogTruncated(NamedTuple):
    """The log now ends at this offset, after a truncation."""

    end_offset: int


class LogFlushed(NamedTuple):
    """The log is durable up to this offset, exclusive."""

    end_offset: int


class RequestReceived(NamedTuple):
    """A request of a peer, or of a client about the quorum. It gets one response: a `Respond` with the same token.

    A Fetch is for the machine if it is for the metadata partition alone. `listener`: the name of the listener by which
    the request came, so that the response can name the leader's address there.
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
    """The connection was refused or reset: the peer's process has ended. False for a timeout."""


class DeadlineReached(NamedTuple):
    """The time of `next_deadline_ms` has come.

    The machine ignores an event that comes early, and tolerates one that comes late.
    """


class SnapshotLoaded(NamedTuple):
    """The fetched snapshot has replaced the log, which starts and ends at the end of the snapshot.

    `quorum`: the version and voters that the snapshot names.
    """

    snapshot_id: SnapshotId
    quorum: QuorumDescription


class SnapshotRefused(NamedTuple):
    """The fetched snapshot was malformed, or the disk had no room for it. The shell has removed it."""

    snapshot_id: SnapshotId


class Resign(NamedTuple):
    """The controller of this epoch failed, so that this node must not lead any more.

    Ignored unless this node leads the epoch.
    """

    epoch: int


class RaiseVersion(NamedTuple):
    """The controller of this epoch decided to raise kraft.version. Ignored unless this node leads the epoch."""

    epoch: int
    version: int


class Stop(NamedTuple):
    """A clean stop has begun: a leader resigns, and this node never becomes a candidate again. The last effect is
    `Stopped`."""

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
    """Make the election durable in quorum-state, then feed `ElectionSaved`. At most one is in progress."""

    election: ElectionState


class Append(NamedTuple):
    """Append one batch of control records in this leader epoch and have it synced; feed `LogAppended`, and `LogFlushed`
    later."""

    epoch: int
    records: Sequence[Record]


class AppendFetched(NamedTuple):
    """Append the leader's batches as they are and sync them; feed `LogAppended` at once, `LogFlushed` later. The first
    batch must begin at the end of the log, and none may have an epoch after `leader_epoch`: what follows the last valid
    batch is dropped. If no batch is valid, `LogAppended` is fed with the unchanged end."""

    records: BytesLike
    leader_epoch: int


class TruncateLog(NamedTuple):
    """Remove the records from this offset on, then feed `LogTruncated`.

    The offset is never below the high watermark.
    """

    end_offset: int


class Send(NamedTuple):
    """Send in the latest version that both sides support; feed `ResponseReceived`, with a response or without one."""

    to: Destination
    request: OutgoingRequest
    timeout_ms: int


class Respond(NamedTuple):
    """Send the response to the request of this token."""

    token: object
    response: QuorumResponse


class RespondWithRecords(NamedTuple):
    """Respond with at least one batch of the log from this offset on, in the one partition of the response."""

    token: object
    response: FetchResponse
    fetch_offset: int
    size_max: int
    """The most bytes of batches; the first batch may be larger."""


class RespondWithSnapshot(NamedTuple):
    """Respond with bytes of a snapshot, in the one partition of the response."""

    token: object
    response: FetchSnapshotResponse
    snapshot_id: SnapshotId
    position: int
    size_max: int


class WriteSnapshotPart(NamedTuple):
    """Write these bytes of a snapshot that is being fetched. Position 0 begins the file again."""

    snapshot_id: SnapshotId
    position: int
    data: BytesLike


class CompleteSnapshot(NamedTuple):
    """Make the completely fetched snapshot durable, replace the log by it, and load it. Then feed `SnapshotLoaded` or
    `SnapshotRefused`.
    """

    snapshot_id: SnapshotId


class Lead(NamedTuple):
    """This node leads from now on: start a controller.

    The effect comes after the append of the first batch of the term.
    """

    epoch: int


class Follow(NamedTuple):
    """This node follows: end the controller of an earlier epoch. `leader_id` is -1 if no leader is known."""

    epoch: int
    leader_id: int


class Commit(NamedTuple):
    """Every record before this offset is committed: each later leader has it (leader completeness)."""

    high_watermark: int


class Stopped(NamedTuple):
    """A clean stop is complete: every voter that can be reached knows that this node has resigned."""


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
