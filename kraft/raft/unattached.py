"""Unattached: a voter that has read its state and knows of no leader."""

from __future__ import annotations

from typing import NamedTuple

from kraft.raft.candidate import Candidate
from kraft.raft.election import Election
from kraft.raft.events import Effect, Event, SaveElection, Started
from kraft.raft.quorum import Quorum


class Unattached(NamedTuple):
    """The only voter need not ask whether anybody leads: it stands for the next epoch at once."""

    quorum: Quorum
    election: Election
    end_offset: int

    def step(self, event: Event, now_ms: int) -> tuple[Unattached | Candidate, list[Effect]]:
        assert isinstance(event, Started), f"{event} before the machine was started"
        quorum = self.quorum
        assert quorum.voters.is_only(quorum.node_id), "a quorum of one"
        vote = Election(
            epoch=self.election.epoch + 1,
            voted_id=quorum.node_id,
            voted_directory_id=quorum.directory_id if quorum.kraft_version > 0 else bytes(16),
        )
        return Candidate(quorum, vote, self.end_offset), [SaveElection(vote)]
