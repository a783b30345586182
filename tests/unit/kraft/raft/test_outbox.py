"""Nothing is said in an epoch, or of a vote, that a crash could take back."""

from __future__ import annotations

from moldau.kraft.raft.election_state import ElectionState
from moldau.kraft.raft.events import Commit, Respond, SaveElection
from moldau.kraft.raft.outbox import Outbox
from moldau.protocol.messages.vote import VoteResponse

REPLY = Respond(1, VoteResponse())
OTHER = Respond(2, VoteResponse())


def test_what_is_said_waits_for_the_epoch() -> None:
    outbox = Outbox(ElectionState(4))
    outbox.save(ElectionState(5))
    outbox.put(REPLY)
    assert outbox.take_effects() == [SaveElection(ElectionState(5))]
    outbox.on_election_saved(ElectionState(5))
    assert outbox.take_effects() == [REPLY]


def test_what_concerns_this_node_alone_does_not_wait() -> None:
    outbox = Outbox(ElectionState(4))
    outbox.save(ElectionState(5))
    outbox.put(Commit(7))
    assert outbox.take_effects() == [SaveElection(ElectionState(5)), Commit(7)]


def test_who_leads_is_a_hint() -> None:
    outbox = Outbox(ElectionState(4, voted_id=2))
    outbox.save(ElectionState(4, leader_id=2, voted_id=2))
    outbox.put(REPLY)
    assert outbox.take_effects() == [SaveElection(ElectionState(4, leader_id=2, voted_id=2)), REPLY]


def test_a_vote_waits_though_its_epoch_is_being_saved() -> None:
    """One election at a time is at the disk; the next one follows, and only then may the vote be told."""
    outbox = Outbox(ElectionState(4))
    outbox.save(ElectionState(5))
    outbox.put(REPLY)
    assert outbox.take_effects() == [SaveElection(ElectionState(5))]
    outbox.save(ElectionState(5, voted_id=3))
    outbox.put(OTHER)
    assert outbox.take_effects() == []
    outbox.on_election_saved(ElectionState(5))
    assert outbox.take_effects() == [SaveElection(ElectionState(5, voted_id=3)), REPLY]
    outbox.on_election_saved(ElectionState(5, voted_id=3))
    assert outbox.take_effects() == [OTHER]


def test_of_several_elections_in_one_step_the_last_is_saved() -> None:
    outbox = Outbox(ElectionState(4))
    outbox.save(ElectionState(5))
    outbox.save(ElectionState(5, voted_id=3))
    outbox.put(REPLY)
    assert outbox.take_effects() == [SaveElection(ElectionState(5, voted_id=3))]
