"""What the Raft machine wants done, as lines of a transcript."""

from __future__ import annotations

from moldau.kraft.quorum.control_records import QuorumDescription, quorum_after
from moldau.kraft.raft.events import OutgoingRequest, QuorumResponse
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.compiler import decode
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    vote,
)
from moldau.protocol.record_builder import Record
from moldau.protocol.records.control import LeaderChangeMessage


def control_told(record: Record) -> str:
    kind = control_record_type(record.key)
    if kind is ControlRecordType.LEADER_CHANGE:
        assert record.value is not None
        message = decode(LeaderChangeMessage, record.value, 0)
        granting = [voter.voter_id for voter in message.granting_voters]
        return f"leader change to {message.leader_id}, voted for by {granting}"
    described = quorum_after(record, QuorumDescription())
    if described.voters is not None:
        return f"voters {list(described.voters.ids)}"
    return f"kraft.version {described.kraft_version}"


def request_told(request: OutgoingRequest) -> str:
    match request:
        case vote.VoteRequest():
            (asked,) = request.topics[0].partitions
            kind = "pre-vote" if asked.pre_vote else "vote"
            return f"{kind} in epoch {asked.replica_epoch}, log ends {asked.last_offset_epoch}:{asked.last_offset}"
        case begin_quorum_epoch.BeginQuorumEpochRequest():
            return f"begin epoch {request.topics[0].partitions[0].leader_epoch}"
        case end_quorum_epoch.EndQuorumEpochRequest():
            (ended,) = request.topics[0].partitions
            preferred = [each.candidate_id for each in ended.preferred_candidates]
            return f"end epoch {ended.leader_epoch}, next should be {preferred}"
        case fetch.FetchRequest():
            (part,) = request.topics[0].partitions
            end = f"{part.last_fetched_epoch}:{part.fetch_offset}"
            return f"fetch in epoch {part.current_leader_epoch}, log ends {end}, hw={part.high_watermark}"
        case fetch_snapshot.FetchSnapshotRequest():
            (piece,) = request.topics[0].partitions
            return f"fetch snapshot {piece.snapshot_id.end_offset}@{piece.snapshot_id.epoch} from {piece.position}"
        case add_raft_voter.AddRaftVoterRequest():
            when = "committed" if request.ack_when_committed else "written"
            return f"add voter {request.voter_id}/{request.voter_directory_id.hex()[-2:]}, answered when {when}"
        case remove_raft_voter.RemoveRaftVoterRequest():
            return f"remove voter {request.voter_id}/{request.voter_directory_id.hex()[-2:]}"
    return type(request).__name__


def response_told(response: QuorumResponse) -> str:
    match response:
        case vote.VoteResponse() if response.topics:
            (voted,) = response.topics[0].partitions
            granted = "granted" if voted.vote_granted else "refused"
            return f"{granted} {error_told(voted.error_code)}epoch={voted.leader_epoch} leader={voted.leader_id}"
        case begin_quorum_epoch.BeginQuorumEpochResponse() | end_quorum_epoch.EndQuorumEpochResponse() if (
            response.topics
        ):
            (told,) = response.topics[0].partitions
            return f"{error_told(told.error_code)}epoch={told.leader_epoch} leader={told.leader_id}"
        case fetch.FetchResponse() if response.responses:
            (part,) = response.responses[0].partitions
            leader = part.current_leader
            assert leader is not None
            text = f"{error_told(part.error_code)}epoch={leader.leader_epoch} leader={leader.leader_id}"
            if part.diverging_epoch is not None:
                text += f" diverging {part.diverging_epoch.epoch}:{part.diverging_epoch.end_offset}"
            if part.snapshot_id is not None:
                text += f" snapshot {part.snapshot_id.end_offset}@{part.snapshot_id.epoch}"
            return f"{text} hw={part.high_watermark}"
        case fetch_snapshot.FetchSnapshotResponse() if response.topics:
            (piece,) = response.topics[0].partitions
            return f"{error_told(piece.error_code)}size={piece.size}"
        case describe_quorum.DescribeQuorumResponse() if response.topics:
            (state,) = response.topics[0].partitions
            voters = {each.replica_id: each.log_end_offset for each in state.current_voters}
            observers = {each.replica_id: each.log_end_offset for each in state.observers}
            return f"leader={state.leader_id} hw={state.high_watermark} voters={voters} observers={observers}"
        case add_raft_voter.AddRaftVoterResponse() | remove_raft_voter.RemoveRaftVoterResponse():
            return f"{error_told(response.error_code)}{response.error_message or ''}"
    return error_told(response.error_code)


def error_told(code: int) -> str:
    return f"{ErrorCode(code).name} "


def snapshot_told(snapshot_id: SnapshotId) -> str:
    return f"snapshot {snapshot_id.end_offset}@{snapshot_id.epoch}"
