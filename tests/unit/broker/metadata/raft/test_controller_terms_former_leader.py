"""What a new leader knows of the node that led before it."""

from __future__ import annotations

from moldau.broker.metadata.raft.controller_terms import FormerLeader, LastContact


def test_a_leader_that_was_followed_is_taken_once() -> None:
    now_ms = 100
    former = FormerLeader(lambda: now_ms)
    assert former.take_contact() is None
    former.note_leader(2)
    now_ms = 250
    former.note_answer()
    assert former.take_contact() == LastContact(2, heard_ms=250)
    assert former.take_contact() is None and former.node_id == -1


def test_a_leader_whose_connection_broke_was_not_heard_from() -> None:
    former = FormerLeader(lambda: 100)
    former.note_leader(2)
    former.note_disconnected()
    assert former.take_contact() == LastContact(2, heard_ms=None)
