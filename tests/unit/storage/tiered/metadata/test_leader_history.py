"""Which remote segments are of the leader's history, as Apache Kafka's RemoteLogManager answers.

A line of `apache_epochs.txt`: first and last offset of a segment, its epochs, the end of the log, the leader's epochs,
the answer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.checkpoints.leader_epochs import EpochStart
from storage.tiered.metadata.leader_history import is_in_history
from storage.tiered.metadata.remote_segment import RemoteSegment

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
    without_epoch_2 = epochs_of("0:0,1:138,3:338")
    assert not is_in_history(segment, 340, without_epoch_2, is_compacted=True)
    shorter = epochs_of("0:0,1:138,2:232,3:290")
    assert not is_in_history(segment, 340, shorter, is_compacted=True)
