"""The Raft machine: it is in one role at a time, and each event may change it.

    role        event          next        effects
    unattached  Started        candidate   SaveElection (epoch + 1, a vote for itself)
    candidate   ElectionSaved  leader      SaveElection (it leads), Append (leader change), Lead
    leader      Appended       leader
    leader      Flushed        leader      Commit, from its own term on
    leader      ElectionSaved  leader

A restart begins unattached, in the epoch that quorum-state holds; so every start is a new epoch.
"""

from __future__ import annotations

from typing import TypeAlias

from kraft.raft.candidate import Candidate
from kraft.raft.election import NOBODY, Election
from kraft.raft.events import Effect, Event
from kraft.raft.leader import Leader
from kraft.raft.quorum import Quorum
from kraft.raft.unattached import Unattached

Role: TypeAlias = Unattached | Candidate | Leader


class Raft:
    """Feed it every event in the order it happened, and carry out its effects in the order they come."""

    def __init__(self, quorum: Quorum, election: Election, end_offset: int, last_epoch: int) -> None:
        """`last_epoch`: of the last record in the log; a lost quorum-state must not lead back behind it."""
        epoch = max(election.epoch, last_epoch)
        self.role: Role = Unattached(quorum, Election(epoch) if epoch > election.epoch else election, end_offset)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        self.role, effects = self.role.step(event, now_ms)
        return effects

    @property
    def epoch(self) -> int:
        return self.role.election.epoch

    @property
    def leader_id(self) -> int:
        """-1 where nobody is known to lead."""
        return self.role.election.leader_id if isinstance(self.role, Leader) else NOBODY
