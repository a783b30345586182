"""The remote log of a partition against Apache Kafka's cache, step by step, and what cleaned segments add.

`apache_cache.txt` was written by `tests/conformance/java/facts/RemoteLogFacts.java`: random sequences of records, and
after each record, for the leader epochs 0 to 3, which segment is read at each of the offsets 0 to 15, which one is the
next with a transaction index, the highest offset, and the segments that are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.lineage import Lineage, ancestor_digest
from moldau.storage.tiered.metadata.records import RemoteChange
from moldau.storage.tiered.metadata.remote_log import OFFSET_MAX, RemoteLog
from moldau.storage.tiered.metadata.remote_segment import (
    PARTITION_REMOVAL_STATES,
    UNFINISHED_COPY_REMAINS,
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)

OFFSETS = range(16)
FINISHED, DELETING, DELETED = list(SegmentState)[1:]


def segment_id(name: str) -> bytes:
    return bytes(15) + bytes([ord(name) - ord("A")])


def name_of(segment: RemoteSegment | None) -> str:
    return "." if segment is None else chr(segment.segment_id[-1] + ord("A"))


def change_of(words: list[str]) -> RemoteChange:
    kind, name, *fields = words
    if kind == "update":
        return SegmentUpdate(segment_id(name), 1, 7, SegmentState(int(fields[0])))
    epochs = tuple(EpochStart(*map(int, each.split(":"))) for each in fields[2].split(","))
    start, last = map(int, fields[:2])
    return RemoteSegment(segment_id(name), start, last, 1, 5, 6, epochs, 100, has_transaction_index=fields[3] == "txn")


def steps() -> Iterator[tuple[RemoteLog, str, list[str]]]:
    log = RemoteLog()
    for line in Path(__file__).with_name("apache_cache.txt").read_text().splitlines():
        if line.startswith("sequence"):
            log = RemoteLog()
            continue
        words, _, told = line.partition(" = ")
        log.replay(change_of(words.split()))
        yield log, words, told.split(" | ")


def test_every_lookup_is_apache_kafkas() -> None:
    for log, words, (told, *epochs) in steps():
        states = sorted(f"{name_of(each)}{each.state}" for each in log.segments())
        assert [told.split()[1:]] == [["".join(states)] if states else []], words
        for epoch, (read, with_transactions, highest, _) in enumerate(map(str.split, epochs)):
            assert "".join(name_of(log.find_segment(epoch, offset)) for offset in OFFSETS) == read, words
            found = (name_of(log.next_with_transaction_index(epoch, offset)) for offset in OFFSETS)
            assert "".join(found) == with_transactions, words
            assert str(log.highest_offset(epoch) if log.highest_offset(epoch) is not None else "-") == highest, words


def test_nothing_that_apache_kafka_lists_is_missing_and_nothing_known_is_lost() -> None:
    for log, words, (_, *epochs) in steps():
        known = {name_of(each): each for each in log.segments()}
        for epoch, listed in enumerate(each.split()[3] for each in epochs):
            ours = {name for name, each in known.items() if epoch in [start.epoch for start in each.epochs]}
            assert set(listed) - {"-", "?"} <= ours, words
        finished = {name for name, each in known.items() if each.state is FINISHED}
        read = {name_of(each) for each in log.read_segments()}
        superseded = {name_of(each) for each, _ in log.superseded_copies()}
        assert read.isdisjoint(superseded) and read | superseded == finished, words


def log_of(*changes: str) -> RemoteLog:
    log = RemoteLog()
    for change in changes:
        assert log.replay(change_of(change.split())), change
    return log


def view(log: RemoteLog, epoch: int = 0) -> str:
    return "".join(name_of(log.find_segment(epoch, offset)) for offset in OFFSETS)


def finish(log: RemoteLog, words: str, ancestors: str, generation: int = 1, cleaned_end_offset: int = 10) -> None:
    """Copy a cleaned segment that was made from its ancestors."""
    ids = [segment_id(name) for name in ancestors]
    lineage = Lineage(generation, cleaned_end_offset, len(ids), ancestor_digest(ids))
    change = change_of(f"start {words} empty".split())
    assert isinstance(change, RemoteSegment)
    log.replay(replace(change, custom_metadata=lineage.encode()))
    log.replay(SegmentUpdate(change.segment_id, 1, 50, FINISHED, lineage.encode()))


def three_segments() -> RemoteLog:
    return log_of(
        *("start A 0 4 0:0 txn", "update A 1", "start B 5 9 0:5,1:7 txn", "update B 1"),
        *("start C 10 15 1:10 txn", "update C 1"),
    )


def test_a_copy_that_was_finished_just_before_is_not_deleted_as_an_unfinished_one() -> None:
    deletion = SegmentUpdate(segment_id("A"), 2, 8, DELETING, UNFINISHED_COPY_REMAINS)
    finished = log_of("start A 0 4 0:0 txn", "update A 1")
    assert not finished.replay(deletion)
    assert (view(finished)[:6], finished.state_of(segment_id("A"))) == ("AAAAA.", FINISHED)
    unfinished = log_of("start A 0 4 0:0 txn")
    assert unfinished.replay(deletion)
    assert not unfinished.replay(SegmentUpdate(segment_id("A"), 1, 9, FINISHED))
    assert (view(unfinished)[:6], unfinished.state_of(segment_id("A"))) == ("......", DELETING)


def test_a_repeated_record_has_no_effect() -> None:
    log = log_of("start A 0 4 0:0 txn", "start B 0 4 0:0 txn", "update A 1", "update B 1")
    assert log.replay(change_of(["update", "A", "1"]))
    assert view(log) == "BBBBB..........."
    assert not log.replay(change_of(["start", "A", "0", "4", "0:0", "txn"]))
    assert not log.replay(change_of(["update", "Z", "1"]))
    assert not log.replay(change_of(["update", "A", "0"]))


def test_a_cleaned_segment_replaces_its_ancestors_at_once_in_all_epochs() -> None:
    log = three_segments()
    finish(log, "D 0 9 0:0,1:7", "AB")
    assert (view(log, 0), view(log, 1)) == ("DDDDDDD.........", ".......DDDCCCCCC")
    assert [(name_of(each), since) for each, since in log.superseded_copies()] == [("A", 50), ("B", 50)]
    assert log.highest_offset(0) == 6 and log.highest_offset(1) == 15
    assert log.size() == 200


def test_a_cleaned_segment_in_the_middle_leaves_those_around_it() -> None:
    log = three_segments()
    finish(log, "D 5 9 0:5,1:7", "B")
    assert (view(log, 0), view(log, 1)) == ("AAAAADD.........", ".......DDDCCCCCC")


@pytest.mark.parametrize("ancestors", ["A", "ABC", "AC", "AZ"])
def test_a_segment_that_was_cleaned_from_others_than_those_that_are_read_is_never_read(ancestors: str) -> None:
    log = three_segments()
    before = view(log, 0), view(log, 1)
    finish(log, "D 0 9 0:0,1:7", ancestors)
    assert (view(log, 0), view(log, 1)) == before
    assert [name_of(each) for each, _ in log.superseded_copies()] == ["D"]


def test_of_two_that_cleaned_the_same_range_the_first_to_finish_stays() -> None:
    log = three_segments()
    finish(log, "D 0 9 0:0,1:7", "AB")
    finish(log, "E 0 9 0:0,1:7", "AB")
    assert view(log) == "DDDDDDD........."
    finish(log, "F 0 15 0:0,1:7", "DC", generation=2)
    assert (view(log, 0), view(log, 1)) == ("FFFFFFF.........", ".......FFFFFFFFF")


def test_a_cleaned_segment_of_which_an_ancestor_is_being_deleted_is_never_read() -> None:
    log = three_segments()
    log.replay(change_of(["update", "A", "2"]))
    finish(log, "D 0 9 0:0,1:7", "AB")
    assert view(log) == ".....BB........."


def test_a_range_that_ends_inside_an_ancestor_is_refused() -> None:
    log = three_segments()
    finish(log, "D 0 7 0:0,1:7", "AB")
    assert view(log) == "AAAAABB........."


def overlapping() -> RemoteLog:
    """Two leaders copied the offsets 5 to 9."""
    return log_of("start A 0 9 0:0 txn", "update A 1", "start B 5 15 0:5 txn", "update B 1")


def test_a_segment_takes_the_place_of_its_twin_among_others_that_overlap() -> None:
    log = overlapping()
    finish(log, "D 0 9 0:0", "A")
    assert view(log) == "DDDDDBBBBBBBBBBB"
    finish(log, "E 5 15 0:5", "B")
    assert view(log) == "DDDDDEEEEEEEEEEE"
    assert [name_of(each) for each, _ in log.superseded_copies()] == ["A", "B"]
    assert log.size() == 200


def test_a_twin_is_read_only_in_the_epochs_in_which_its_ancestor_was() -> None:
    log = log_of("start A 0 9 0:0,1:5 txn", "update A 1", "start B 5 9 1:5 txn", "update B 1")
    assert (view(log, 0), view(log, 1)) == ("AAAAA...........", ".....BBBBB......")
    finish(log, "D 0 9 0:0,1:5", "A")
    assert (view(log, 0), view(log, 1)) == ("DDDDD...........", ".....BBBBB......")


def test_of_two_twins_the_second_is_never_read() -> None:
    log = overlapping()
    finish(log, "D 0 9 0:0", "A")
    finish(log, "E 0 9 0:0", "A")
    assert view(log) == "DDDDDBBBBBBBBBBB"


def test_a_late_copy_does_not_bring_erased_records_back() -> None:
    """Without erasure a late copy is read, as in Apache Kafka."""
    for is_erased, read in ((False, "CCCCCCCCCC......"), (True, "DDDDDDDDDD......")):
        log = log_of("start A 0 9 0:0 txn", "update A 1", "start C 0 9 0:0 txn")
        if is_erased:
            finish(log, "D 0 9 0:0", "A", cleaned_end_offset=0)
        log.replay(change_of(["update", "C", "1"]))
        assert view(log) == read
    assert "C" in [name_of(each) for each, _ in log.superseded_copies()]


def test_ancestors_go_by_their_own_records() -> None:
    log = three_segments()
    finish(log, "D 0 9 0:0,1:7", "AB")
    for change in ("update A 2", "update A 3", "update B 2"):
        assert log.replay(change_of(change.split()))
    assert view(log) == "DDDDDDD........."
    assert [name_of(each) for each in log.segments_in_deletion()] == ["B"]
    assert log.superseded_copies() == [] and len(log) == 3


def test_what_is_cleaned_everywhere_is_the_least_of_all_that_is_read() -> None:
    log = RemoteLog()
    assert log.cleaned_end_offset() == OFFSET_MAX
    log = three_segments()
    assert log.cleaned_end_offset() == 0
    finish(log, "D 0 9 0:0,1:7", "AB", cleaned_end_offset=12)
    assert log.cleaned_end_offset() == 0
    finish(log, "E 10 15 1:10", "C", cleaned_end_offset=16)
    assert log.cleaned_end_offset() == 12


def test_unfinished_copies_are_listed_by_age() -> None:
    log = log_of("start B 5 9 0:5 txn", "start A 0 4 0:0 txn", "start C 0 4 0:0 txn", "update C 1")
    assert [name_of(each) for each in log.unfinished_copies()] == ["A", "B"]


def test_a_partition_is_removed_step_by_step() -> None:
    log = RemoteLog()
    assert not log.replay(PartitionDelete(1, 2, PartitionDeleteState.DELETE_PARTITION_STARTED))
    for state in PartitionDeleteState:
        assert log.replay(PartitionDelete(1, 2, state))
        assert log.delete_state is state
    assert log.delete_state not in PARTITION_REMOVAL_STATES
    assert not log.replay(PartitionDelete(1, 2, PartitionDeleteState.DELETE_PARTITION_STARTED))
    assert log.replay(PartitionDelete(1, 2, PartitionDeleteState.DELETE_PARTITION_MARKED)), "it was tiered again"
    assert log.delete_state in PARTITION_REMOVAL_STATES


def test_nothing_counts_as_copied_once_a_removal_is_finished() -> None:
    log = log_of("start A 0 4 0:0 txn", "update A 1", "update A 2", "update A 3")
    assert log.highest_offset(0) == 4, "retention deleted the segment"
    for state in PartitionDeleteState:
        log.replay(PartitionDelete(1, 2, state))
    assert log.highest_offset(0) is None
