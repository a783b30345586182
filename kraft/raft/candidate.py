"""Candidate: a voter that stands for an epoch. Its own vote counts once it is durable."""

from __future__ import annotations

from typing import NamedTuple

from kraft.raft.control_records import leader_change, quorum_records
from kraft.raft.election import Election
from kraft.raft.events import Append, Effect, ElectionSaved, Event, Lead, SaveElection
from kraft.raft.leader import Leader
from kraft.raft.quorum import Quorum


class Candidate(NamedTuple):
    quorum: Quorum
    election: Election
    end_offset: int
    granted: tuple[int, ...] = ()
    """Who voted for this node, in order."""

    def step(self, event: Event, now_ms: int) -> tuple[Candidate | Leader, list[Effect]]:
        assert isinstance(event, ElectionSaved), f"{event} before the vote is durable"
        assert event.election == self.election, "another election was saved"
        granted = (*self.granted, self.quorum.node_id)
        if len(granted) < self.quorum.voters.majority:
            return self._replace(granted=granted), []
        return self._won(granted, now_ms)

    def _won(self, granted: tuple[int, ...], now_ms: int) -> tuple[Leader, list[Effect]]:
        """The first batch of the term says who leads; it is what earlier terms' records are committed with."""
        quorum = self.quorum
        election = Election(self.election.epoch, leader_id=quorum.node_id)
        records = [leader_change(quorum.node_id, quorum.voters, granted, now_ms)]
        if quorum.announces_voters:
            records += quorum_records(quorum.kraft_version, quorum.voters, now_ms)
        leader = Leader(quorum, election, epoch_start_offset=self.end_offset)
        return leader, [SaveElection(election), Append(election.epoch, records), Lead(election.epoch)]
