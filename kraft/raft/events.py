"""What happens to the Raft machine, and what it wants done.

Persist, then act: whatever may only happen once something is durable is no effect of the step that asked for the
durability. It is an effect of the step that hears of it, so the wrong order cannot be written down:

    SaveElection      ⟶  ElectionSaved    before the vote counts, is answered, or anything is said in its epoch
    Append            ⟶  Appended         before the end of the log is known
    AppendFetched     ⟶  Appended         ...
    (a sync)          ⟶  Flushed          before a copy counts: the leader's own, and a follower's at its next Fetch
    Truncate          ⟶  Truncated        before the follower fetches again
    SnapshotFetched   ⟶  SnapshotLoaded   before the follower fetches from its end

Effects are carried out in the order they come. One that is answered at once (Append, AppendFetched, Truncate) may be
answered while the rest of its list is still to be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from kraft.raft.control_records import QuorumDescription
from kraft.raft.election_state import ElectionState
from kraft.snapshot.names import SnapshotId
from protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from protocol.messages.vote import VoteRequest, VoteResponse
from protocol.primitives import BytesLike
from protocol.record_builder import Record

PeerRequest: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | UpdateRaftVoterRequest
)
"""What the members of a quorum ask one another."""
QuorumRequest: TypeAlias = PeerRequest | DescribeQuorumRequest | AddRaftVoterRequest | RemoveRaftVoterRequest
"""What the machine answers."""
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
"""What the machine sends."""
IncomingResponse: TypeAlias = QuorumResponse | ApiVersionsResponse


class Destination(NamedTuple):
    """`node_id`: negative for a bootstrap server, of which only the address is known."""

    node_id: int
    host: str
    port: int


# Events


class Started(NamedTuple):
    """The log and quorum-state have been read."""


class ElectionSaved(NamedTuple):
    """quorum-state is durable as it was asked for."""

    election: ElectionState


class LogAppended(NamedTuple):
    """The log has grown to this end offset: the leader's own records, or fetched ones.

    `descriptions`: the quorum as control records in what was appended leave it, each with the offset of its batch.
    """

    end_offset: int
    descriptions: Sequence[tuple[int, QuorumDescription]] = ()


class LogTruncated(NamedTuple):
    """The log ends here now."""

    end_offset: int


class LogFlushed(NamedTuple):
    """The log is durable up to this offset, exclusive."""

    end_offset: int


class RequestReceived(NamedTuple):
    """A request of a peer, or of a client about the quorum. It is answered with a Reply of the same token, once.

    A Fetch is for the machine if it is for the metadata partition alone. `listener`: the name of the one that it came
    in by, so that the answer can name the leader's address there.
    """

    token: object
    request: QuorumRequest
    version: int
    listener: str = ""


class ResponseReceived(NamedTuple):
    """What became of a Send: once for each. `request` is the very object that was sent."""

    to: Destination
    request: OutgoingRequest
    response: IncomingResponse | None
    """None: none came, for the time ran out or the connection failed."""
    is_refused: bool = False
    """The connection was refused or reset: whoever was there is gone. False for a timeout."""


class DeadlineReached(NamedTuple):
    """The time of `next_deadline_ms` has come; earlier or later does no harm."""


class SnapshotLoaded(NamedTuple):
    """The fetched snapshot has replaced the log, which starts and ends at its end; `quorum` is what it says."""

    snapshot_id: SnapshotId
    quorum: QuorumDescription


class SnapshotRefused(NamedTuple):
    """The fetched snapshot was malformed and has been thrown away."""

    snapshot_id: SnapshotId


class Resign(NamedTuple):
    """The controller of this epoch failed: somebody else is to lead. Nothing, unless this node leads the epoch."""

    epoch: int


class RaiseVersion(NamedTuple):
    """The controller of this epoch decided to raise kraft.version. Nothing, unless this node leads the epoch."""

    epoch: int
    version: int


class Stop(NamedTuple):
    """A clean stop has begun: a leader ends its epoch, and nothing is stood for any more. Answered with `Stopped`."""

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
    """Make it durable in quorum-state; answer with `ElectionSaved`. There is one at a time."""

    election: ElectionState


class Append(NamedTuple):
    """Append one batch of control records in this leader epoch and have it synced; answer with `LogAppended`, then with
    `LogFlushed`."""

    epoch: int
    records: Sequence[Record]


class AppendFetched(NamedTuple):
    """Append the leader's batches as they are, have them synced; answer with `LogAppended` at once, `LogFlushed` later.

    The first must begin at the end of the log, and none may be of an epoch after `leader_epoch`: what follows the last
    valid batch is dropped. Where nothing is left, `LogAppended` with the old end is still due.
    """

    records: BytesLike
    leader_epoch: int


class TruncateLog(NamedTuple):
    """Drop everything from this offset on; answer with `LogTruncated`. Never below what was committed."""

    end_offset: int


class Send(NamedTuple):
    """Send in the latest version that both know; answer with `ResponseReceived`."""

    to: Destination
    request: OutgoingRequest
    timeout_ms: int


class Respond(NamedTuple):
    token: object
    response: QuorumResponse


class RespondWithRecords(NamedTuple):
    """Reply with the log from this offset on, at least one batch, put into the response's one partition."""

    token: object
    response: FetchResponse
    fetch_offset: int
    size_max: int
    """In bytes; a first batch may be greater."""


class RespondWithSnapshot(NamedTuple):
    """Reply with bytes of a snapshot, put into the response's one partition as they are."""

    token: object
    response: FetchSnapshotResponse
    snapshot_id: SnapshotId
    position: int
    size_max: int


class SnapshotPart(NamedTuple):
    """Write these bytes of a snapshot that is being fetched; position 0 begins it anew."""

    snapshot_id: SnapshotId
    position: int
    data: BytesLike


class SnapshotFetched(NamedTuple):
    """The snapshot is whole: make it durable, put it in the place of the log, load it; answer with `SnapshotLoaded`
    or `SnapshotRefused`."""

    snapshot_id: SnapshotId


class Lead(NamedTuple):
    """This node leads from here on: build the controller. Comes after the batch that begins the term."""

    epoch: int


class Follow(NamedTuple):
    """This node does not lead (any more): a controller of an earlier epoch is to end. `leader_id` is -1 for nobody."""

    epoch: int
    leader_id: int


class Commit(NamedTuple):
    """Everything before this offset will stay for ever."""

    high_watermark: int


class Stopped(NamedTuple):
    """A clean stop is done: this node owes the quorum nothing any more."""


Effect: TypeAlias = (
    SaveElection
    | Append
    | AppendFetched
    | TruncateLog
    | Send
    | Respond
    | RespondWithRecords
    | RespondWithSnapshot
    | SnapshotPart
    | SnapshotFetched
    | Lead
    | Follow
    | Commit
    | Stopped
)
