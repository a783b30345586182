"""Follower: a node that copies the leader's log, one fetch after the other. Without a response in time it becomes
prospective.

    Fetch ⟶ records      AppendFetched ⟶ LogAppended ⟶ LogFlushed ⟶ Fetch from the new end
          ⟶ diverging    TruncateLog ⟶ LogTruncated ⟶ Fetch from the new end
          ⟶ snapshot     FetchSnapshot ... CompleteSnapshot ⟶ SnapshotLoaded ⟶ Fetch from its end

An observer (a node that is not a voter) does the same; without a response in time it looks for the leader again.

A snapshot is fetched in parts (KIP-630) if the log of this node ends before the leader's log starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from moldau.kraft.quorum.voter_set import Address
from moldau.kraft.raft.events import (
    AppendFetched,
    CompleteSnapshot,
    Destination,
    OutgoingRequest,
    ResponseReceived,
    TruncateLog,
    WriteSnapshotPart,
)
from moldau.kraft.raft.leader_discovery import LeaderReport, leader_report_of, transition_to_leader
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.outgoing_requests import fetch_request, fetch_snapshot_request
from moldau.kraft.raft.roles.role import RaftRole, RequestedVote
from moldau.kraft.raft.transitions import BecomeProspective, BecomeUnattached, Transition
from moldau.kraft.raft.voters.voter_description import ChangeOfItself, change_of_itself
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import EpochEndOffset, PartitionData
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest, ResponsePartitionSnapshot
from moldau.protocol.messages.update_raft_voter import UpdateRaftVoterResponse
from moldau.protocol.primitives import BytesLike

REFUSED_CONNECTIONS_MAX = 2
"""The number of refused connections in a row after which the leader counts as failed."""


class FollowerRole(RaftRole):
    """The role of a node that follows the leader of its epoch and copies its log."""

    __slots__ = (
        "_fetch_deadline_ms",
        "_has_described_itself",
        "_has_fetched",
        "_heard_high_watermark",
        "_is_writing",
        "_leader",
        "_refusals",
        "_snapshot",
        "_update_deadline_ms",
    )

    def __init__(self, member: QuorumMember) -> None:
        """Begin to fetch from the leader that the election names."""
        super().__init__(member)
        self._leader = Destination(member.election.leader_id, *leader_address(member, member.leader_endpoints))
        self._fetch_deadline_ms = member.fetch_deadline_ms()
        self._update_deadline_ms = self._fetch_deadline_ms
        self._has_fetched = False
        """Whether this leader has responded. While it is True, this node refuses pre-votes; it becomes False when this
        node expects a new leader."""
        self._has_described_itself = False
        """Whether this voter has sent its endpoints to this leader.

        With kraft.version 0 they are not in the log, so this voter sends them to each new leader.
        """
        self._heard_high_watermark = -1
        self._is_writing = False
        """Whether an append or a truncation that this role requested is still in progress."""
        self._refusals = 0
        self._snapshot: SnapshotFetch | None = None

    def enter(self) -> Transition | None:
        return self.tick()

    # Time

    def tick(self) -> Transition | None:
        member = self.member
        if member.now_ms >= self._fetch_deadline_ms and not self._is_waiting_for_disk():
            if not member.may_be_candidate:
                return BecomeUnattached()
            if not member.is_stopping:
                return BecomeProspective()
        if member.peers.can_send(self._leader.node_id, member.now_ms):
            self._ask()
        return None

    def deadline_ms(self) -> int | None:
        member = self.member
        if self._is_waiting_for_disk():
            return None
        deadlines = [] if member.is_stopping and member.may_be_candidate else [self._fetch_deadline_ms]
        if not member.peers.is_waiting(self._leader.node_id):
            deadlines.append(member.peers.ready_ms(self._leader.node_id))
        return min(deadlines, default=None)

    def leader_deadline_ms(self) -> int | None:
        return self._fetch_deadline_ms

    def _is_waiting_for_disk(self) -> bool:
        """Whether the next fetch waits for this node's disk. In that time this node does not suspect the leader."""
        return self._is_writing or self.member.durable_end() is None

    def _disk_done(self) -> Transition | None:
        self._heard_from_leader()
        return self.tick()

    def _heard_from_leader(self) -> None:
        self._fetch_deadline_ms = self.member.fetch_deadline_ms()

    # Requests to the leader

    def _ask(self) -> None:
        member = self.member
        end = member.durable_end()
        request: OutgoingRequest
        if self._is_writing or end is None:
            return
        if self._snapshot is not None:
            request = self._snapshot.request()
        else:
            request = self._change_of_itself() or fetch_request(member, end)
        member.peers.send(self._leader, request)

    def _change_of_itself(self) -> ChangeOfItself | None:
        """The request by which this node corrects its entry in the voters record; None if the entry is right or not due
        for a check. The entry is checked once in each fetch timeout (KIP-853)."""
        member = self.member
        if not self._has_fetched or member.now_ms < self._update_deadline_ms:
            return None
        self._update_deadline_ms = member.now_ms + member.settings.fetch_timeout_ms
        if self._has_described_itself and member.history.kraft_version == 0:
            return None
        return change_of_itself(member)

    # Responses of the leader

    def on_response(self, event: ResponseReceived) -> Transition | None:
        member = self.member
        self._count_refusals(event)
        if isinstance(event.request, ChangeOfItself):
            if isinstance(event.response, UpdateRaftVoterResponse) and event.response.error_code == ErrorCode.NONE:
                self._has_described_itself = True
            return self.tick()
        report = leader_report_of(event.response)
        transition = transition_to_leader(member, report) if report is not None else None
        if transition is not None:
            return transition
        if report is not None and report.is_success and report.epoch == member.epoch:
            self._take(report)
        else:
            if report is not None:
                # The leader may have deleted the snapshot; the response to the next fetch names another one.
                self._snapshot = None
            member.peers.back_off(self._leader.node_id, member.now_ms)
        return self.tick()

    def _take(self, report: LeaderReport) -> None:
        """Handle a successful response of the leader."""
        self._heard_from_leader()
        self._has_fetched = True
        partition = report.partition
        if isinstance(partition, ResponsePartitionSnapshot):
            if self._snapshot is not None and not self._snapshot.append_part(partition):
                self._snapshot = None
        elif isinstance(partition, PartitionData):
            self._take_records(partition)

    def _take_records(self, partition: PartitionData) -> None:
        member = self.member
        if partition.diverging_epoch is not None and partition.diverging_epoch.epoch >= 0:
            self._truncate(partition.diverging_epoch)
        elif partition.snapshot_id is not None and partition.snapshot_id.epoch >= 0:
            snapshot = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
            self._snapshot = SnapshotFetch(member, snapshot)
        else:
            self._heard_high_watermark = partition.high_watermark
            records = cast("BytesLike", partition.records)  # The response was decoded before.
            if records:
                self._is_writing = True
                member.put(AppendFetched(records, member.epoch))
            else:
                self._commit()

    def _truncate(self, diverging: EpochEndOffset) -> None:
        """Remove the end of the log that differs from the leader's log (Raft, section 5.3).

        The response to the next fetch shows whether the rest of the log is the same.
        """
        log = self.member.log
        local = log.end_offset_for_epoch(diverging.epoch)
        is_same = local.epoch == diverging.epoch
        end_offset = min(local.offset, diverging.end_offset) if is_same else local.offset
        assert end_offset >= self.member.high_watermark, "a committed record would be truncated (state machine safety)"
        if end_offset < log.end_offset:
            self._is_writing = True
            self.member.put(TruncateLog(end_offset))

    def _commit(self) -> None:
        self.member.commit(min(self._heard_high_watermark, self.member.log.end_offset))

    def _count_refusals(self, event: ResponseReceived) -> None:
        """Count refused connections in a row.

        A leader whose address refuses connections has ended, so this node does not wait for the fetch timeout.

        DIVERGES: Apache Kafka's followers wait for it. A pre-vote does no harm if the leader is alive after all.
        """
        member = self.member
        self._refusals = self._refusals + 1 if event.is_refused else 0
        if self._refusals == REFUSED_CONNECTIONS_MAX:
            self._expect_new_leader(member.random.randrange(max(1, member.settings.election_timeout_ms // 4)))

    def _expect_new_leader(self, delay_ms: int) -> None:
        """Expect a new leader, because the leader has failed or resigned: this node grants pre-votes, and becomes
        prospective after the delay.
        """
        self._has_fetched = False
        self._fetch_deadline_ms = min(self._fetch_deadline_ms, self.member.now_ms + delay_ms)

    # The log

    def on_log_appended(self) -> Transition | None:
        self._is_writing = False
        self._commit()
        if self.member.durable_end() is not None:  # No fetched batch was valid: the next fetch comes after a pause.
            self.member.peers.back_off(self._leader.node_id, self.member.now_ms)
        return self.tick()

    def on_log_flushed(self) -> Transition | None:
        return self._disk_done() if self.member.durable_end() is not None else None

    def on_log_truncated(self) -> Transition | None:
        self._is_writing = False
        return self._disk_done()

    def on_snapshot_ended(self) -> Transition | None:
        self._snapshot = None
        return self._disk_done()

    # Requests that it receives

    def grants_vote(self, vote: RequestedVote) -> bool:
        """Whether a pre-vote is granted. A vote is never granted, because this epoch has a leader.

        The candidate's log must be at least as long as this node's. A follower of a live leader protects the leader's
        term (KIP-996): it refuses once the leader has responded, unless the leader has failed or resigned since.
        """
        member = self.member
        is_long = member.is_log_as_long(vote.last_epoch, vote.end_offset)
        return vote.is_pre_vote and is_long and not self._has_fetched

    def on_leader_resigned(self, position: int, count: int) -> None:
        """Expect a new leader, because the leader has resigned.

        The first preferred candidate becomes prospective at once. Each further candidate waits twice as long as the
        candidate before it, so that the elections do not collide.
        """
        if position == 0:
            self._expect_new_leader(0)
        else:
            self._expect_new_leader(self.member.settings.election_backoff_max_ms >> max(0, count - position - 1))


def leader_address(member: QuorumMember, endpoints: Mapping[str, Address]) -> Address:
    """The leader's address at the quorum's listener; any of its addresses if it has no listener with that name."""
    return endpoints.get(member.identity.listener) or next(iter(endpoints.values()))


class SnapshotFetch:
    """The fetch of one snapshot in parts.

    If a response is not the next part of this snapshot, the follower begins another fetch.
    """

    def __init__(self, member: QuorumMember, snapshot_id: SnapshotId) -> None:
        self._member = member
        self._snapshot_id = snapshot_id
        self._position = 0
        """The position in the snapshot file before which every byte has been received."""

    def request(self) -> FetchSnapshotRequest:
        """Make the request for the next part."""
        return fetch_snapshot_request(self._member, self._snapshot_id, self._position)

    def append_part(self, partition: ResponsePartitionSnapshot) -> bool:
        """Write the next part of the snapshot. Returns False if the response is not the next part of this snapshot; the
        caller then begins another fetch."""
        data = cast("BytesLike", partition.unaligned_records) or b""  # The response was decoded before.
        said = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        size = len(data)
        end_position = self._position + size
        is_next = said == self._snapshot_id and partition.position == self._position
        if not is_next or end_position > partition.size or (size == 0 and end_position < partition.size):
            return False
        self._member.put(WriteSnapshotPart(said, self._position, data))
        self._position = end_position
        if end_position == partition.size:
            self._member.is_loading = True
            self._member.put(CompleteSnapshot(said))
        return True
