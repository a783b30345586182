"""Which remote segments are of the leader's history, as Apache Kafka's RemoteLogManager answers.

A line of `apache_epochs.txt`: first and last offset of a segment, its epochs, the end of the log, the leader's epochs,
the answer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.leader_history import epoch_at, is_in_history, with_remote_epochs
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment

LINES = Path(__file__).with_name("apache_epochs.txt").read_text().splitlines()


def epochs_of(text: str) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(*map(int, each.split(":"))) for each in text.split(","))


@pytest.mark.parametrize("line", LINES)
def test_it_is_apache_kafkas_answer(line: str) -> None:
    start, last, segment_epochs, end, leader_epochs, answer = line.split()
    segment = RemoteSegment(bytes(16), int(start), int(last), 1, 5, 6, epochs_of(segment_epochs), 100)
    assert is_in_history(segment, int(end), epochs_of(leader_epochs)) == (answer == "true")


def test_a_leader_without_epochs_has_no_history() -> None:
    segment = RemoteSegment(bytes(16), 0, 9, 1, 5, 6, (EpochStart(0, 0),), 100)
    assert not is_in_history(segment, 10, ())


def test_where_a_log_was_compacted_an_epoch_may_begin_later_in_the_replica_that_fetched_it() -> None:
    """The records with which epoch 2 began were superseded before this leader fetched the log."""
    segment = RemoteSegment(bytes(16), 0, 292, 1, 5, 6, epochs_of("0:0,1:138,2:183"), 100)
    leader = epochs_of("0:0,1:138,2:232,3:338")
    assert not is_in_history(segment, 340, leader)
    assert is_in_history(segment, 340, leader, is_compacted=True)
    shorter = epochs_of("0:0,1:138,2:232,3:290")
    assert not is_in_history(segment, 340, shorter, is_compacted=True)


def test_where_a_log_was_compacted_a_replica_may_not_know_an_epoch_of_a_segment() -> None:
    """All records of epoch 2 were superseded before this leader fetched the log."""
    segment = RemoteSegment(bytes(16), 0, 292, 1, 5, 6, epochs_of("0:0,1:138,2:183"), 100)
    leader = epochs_of("0:0,1:138,3:338")
    assert not is_in_history(segment, 340, leader)
    assert is_in_history(segment, 340, leader, is_compacted=True)
    assert not is_in_history(segment, 340, epochs_of("0:0,1:138,3:292"), is_compacted=True)
    newest = epochs_of("0:0,1:138")
    assert not is_in_history(segment, 340, newest, is_compacted=True)  # The leader of epoch 2 deposed this one.


def test_remote_segments_complete_the_epochs_of_a_compacted_log() -> None:
    leader = epochs_of("1:10,2:232,4:338")
    completed = with_remote_epochs(leader, epochs_of("0:0,1:5,2:183,3:300,4:338,5:400"))
    assert completed == list(epochs_of("1:10,2:183,3:300,4:338"))
    assert [epoch_at(completed, offset) for offset in (9, 10, 182, 183, 299, 300, 337, 338, 999)] == [
        None,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ]
    assert with_remote_epochs((), epochs_of("0:0")) == []


def test_epochs_of_another_history_do_not_hide_those_of_the_leader() -> None:
    completed = with_remote_epochs(epochs_of("0:0,3:100,4:300"), epochs_of("0:0,2:95,3:90"))
    assert completed == list(epochs_of("0:0,3:90,4:300"))
