"""The progress of each replica of the metadata log, as its fetches report it to the leader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.kraft.quorum.voter_set import ReplicaKey, VoterNode
from moldau.kraft.raft.member import QuorumMember
from moldau.protocol.messages.fetch import FetchRequest

OBSERVER_SESSION_TIMEOUT_MS: Final = 300_000
"""The time (ms) without a fetch after which the leader removes an observer from its states."""


def replica_id_of(request: FetchRequest) -> int:
    return request.replica_state.replica_id if request.replica_state is not None else request.replica_id


class ReplicaProgress:
    """The progress of one replica in this term of the leader."""

    __slots__ = ("caught_up_ms", "end_offset", "fetch_ms", "leader_end_offset")

    def __init__(self) -> None:
        self.end_offset = -1
        """The offset before which every record is durable on the replica; -1 until its first fetch."""
        self.fetch_ms = -1
        self.caught_up_ms = -1
        """The latest time (ms) at which the replica had the leader's whole log of that time; -1 if it never had."""
        self.leader_end_offset = -1
        """The end offset of the leader's log at the replica's last fetch."""

    def note_fetch(self, end_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Note a fetch of the replica from `end_offset`.

        If the replica is at the end of the leader's log, it has caught up now. If it is at the offset at which the
        leader's log ended at its previous fetch, it had caught up at the time of the previous fetch.
        """
        if end_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif end_offset >= self.leader_end_offset >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.fetch_ms)
        self.end_offset = end_offset
        self.fetch_ms = now_ms
        self.leader_end_offset = leader_end_offset


class ReplicaStates:
    """The progress of all replicas of the metadata log.

    The voters are those of the newest description in the log; any other replica that fetches is an observer.
    """

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self._progress: dict[ReplicaKey, ReplicaProgress] = {}
        self._heard_since_majority: set[int] = set()
        self._majority_ms = member.now_ms
        """The time (ms) of the last complete majority: by then a majority of the voters had each sent a request since
        the majority before it."""

    def note_fetch(self, key: ReplicaKey, end_offset: int) -> None:
        """Note that the replica sent a valid fetch from this offset, so that every record before the offset is durable
        on it."""
        member = self._member
        self._progress.setdefault(key, ReplicaProgress()).note_fetch(end_offset, member.log.end_offset, member.now_ms)
        self._forget_observers()

    def note_request(self, key: ReplicaKey) -> None:
        """Note that a replica sent a valid request. A voter that sends one follows this leader; a request of any other
        replica is ignored here."""
        member = self._member
        if not member.voters.has(key):
            return
        self._heard_since_majority.add(key.id)
        heard = sum(voter.id in self._heard_since_majority for voter in member.other_voters())
        if heard + member.is_voter >= member.voters.majority:
            self._heard_since_majority.clear()
            self._majority_ms = member.now_ms

    def majority_deadline_ms(self) -> int | None:
        """Check quorum (KIP-595): the time (ms) at which the leader has to resign, because a majority may follow
        another leader by then. None if this node alone is a majority. Without this check a leader that is cut off
        would never resign."""
        member = self._member
        if member.is_voter and member.voters.majority == 1:
            return None
        return self._majority_ms + member.settings.fetch_timeout_ms * 3 // 2

    def progress_of_voter(self, voter: VoterNode) -> ReplicaProgress | None:
        """The progress of a voter; None if it has not fetched. With kraft.version 0 a voter is identified by its id
        alone, so the replica of the node that fetched last counts.
        """
        found = [progress for key, progress in self._progress.items() if voter.is_replica(key)]
        return max(found, key=lambda progress: progress.fetch_ms, default=None)

    def progress_of(self, key: ReplicaKey) -> ReplicaProgress | None:
        return self._progress.get(key)

    def durable_on_majority(self) -> int:
        """The greatest offset before which a majority of the voters has all records on disk; -1 if too few voters have
        fetched.

        The leader counts itself only if it is a voter: a leader that removes itself is not (Raft, section 6).
        """
        ends = sorted(map(self._end_offset, self._member.voters.by_id.values()), reverse=True)
        return ends[self._member.voters.majority - 1]

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The keys of the other voters as preferred candidates, the voter with the longest log first."""
        others = self._member.other_voters()
        return tuple(voter.key for voter in sorted(others, key=lambda voter: (-self._end_offset(voter), voter.id)))

    def observers(self) -> Iterable[tuple[ReplicaKey, ReplicaProgress]]:
        voters = self._member.voters
        return [(key, progress) for key, progress in sorted(self._progress.items()) if not voters.has(key)]

    def _end_offset(self, voter: VoterNode) -> int:
        member = self._member
        if voter.id == member.node_id:
            return member.flushed_end_offset if voter.is_replica(member.key) else -1
        progress = self.progress_of_voter(voter)
        return -1 if progress is None else progress.end_offset

    def _forget_observers(self) -> None:
        oldest_ms = self._member.now_ms - OBSERVER_SESSION_TIMEOUT_MS
        for key, progress in self.observers():
            if progress.fetch_ms < oldest_ms:
                del self._progress[key]
