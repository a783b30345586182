"""The history checker finds each anomaly that is planted, and nothing in a history that is as it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.history import History, Told
from tests.support.history_check import Kind, anomalies, summary, told

KEY = ("t", 0)


def sound() -> History:
    """Two producers, ten records each: interleaved, all acknowledged, all read by a tailing and a complete reader."""
    history = History()
    tail, final = history.reading("tail", KEY), history.reading("final", KEY, is_complete=True)
    for offset in range(20):
        value = f"{'ab'[offset % 2]}{offset // 2}"
        history.send(value[0], KEY, value).acknowledge(offset)
        final.got(offset, value)
        if offset >= 4:
            tail.got(offset, value)
    return history


def kinds(history: History) -> set[Kind]:
    return {anomaly.kind for anomaly in anomalies(history)}


def test_a_sound_history_has_no_anomaly() -> None:
    history = sound()
    assert anomalies(history) == []
    assert history.acknowledged_count == 20


def test_what_a_producer_does_not_know_may_or_may_not_be_there() -> None:
    history = sound()
    history.send("a", KEY, "in doubt, gone")
    history.send("a", KEY, "in doubt, there")
    history.readings[1].got(20, "in doubt, there")
    history.send("a", KEY, "failed").fail()
    assert anomalies(history) == []


def test_gaps_between_offsets_are_nothing_to_complain_about() -> None:
    """Markers of transactions take offsets, compaction leaves holes."""
    history = History()
    final = history.reading("final", KEY, is_complete=True)
    for offset in (3, 7, 8, 100):
        history.send("a", KEY, offset).acknowledge(offset)
        final.got(offset, offset)
    assert anomalies(history) == []


def test_partitions_and_producers_do_not_order_one_another() -> None:
    history = sound()
    for value, offset in (("c0", 1), ("d0", 0)):
        history.send(value[0], ("t", 1), value).acknowledge(offset)
    final = history.reading("final", ("t", 1), is_complete=True)
    final.got(0, "d0")
    final.got(1, "c0")
    assert anomalies(history) == []


def test_one_offset_with_two_values_is_found() -> None:
    history = sound()
    history.send("c", KEY, "c0")
    history.reading("other", KEY).got(5, "c0")
    assert kinds(history) == {Kind.INCONSISTENT_OFFSETS}


def test_an_offset_that_was_acknowledged_for_something_else_is_found() -> None:
    history = sound()
    history.send("c", KEY, "c0").acknowledge(19)
    assert kinds(history) >= {Kind.INCONSISTENT_OFFSETS, Kind.UNSEEN}


def test_a_value_at_two_offsets_is_found() -> None:
    history = sound()
    history.readings[1].got(20, "b9")
    assert kinds(history) == {Kind.DUPLICATE}


def test_a_record_that_moved_after_its_acknowledgement_is_found() -> None:
    history = sound()
    history.sends[-1].offset = 25
    assert kinds(history) == {Kind.DUPLICATE}


def test_reading_what_failed_is_found() -> None:
    history = sound()
    history.sends[7].fail()
    assert kinds(history) == {Kind.ABORTED_READ}


def test_reading_what_nobody_sent_is_found() -> None:
    history = sound()
    history.readings[1].got(20, "nobody's")
    assert kinds(history) == {Kind.UNWRITTEN_READ}


@pytest.mark.parametrize("index", [0, 9, 18])
def test_an_acknowledged_record_that_is_gone_is_found(index: int) -> None:
    history = sound()
    for reading in history.readings:
        reading.records = [record for record in reading.records if record[0] != index]
    expected = {Kind.LOST_WRITE, Kind.UNSEEN}
    # From the offset of the acknowledgement it is known that both readers passed it by.
    assert expected <= kinds(history) <= expected | {Kind.POLL_SKIP}


def test_a_lost_record_is_found_without_a_complete_reading() -> None:
    history = sound()
    history.readings = [reading for reading in history.readings if not reading.is_complete]
    history.readings[0].records = [record for record in history.readings[0].records if record[0] != 9]
    assert Kind.LOST_WRITE in kinds(history)


def test_a_lost_tail_is_found_by_the_complete_reading() -> None:
    history = sound()
    for reading in history.readings:
        del reading.records[-3:]
    assert kinds(history) == {Kind.UNSEEN}


def test_a_tail_that_nobody_tried_to_read_is_not_lost() -> None:
    history = sound()
    history.readings = history.readings[:1]
    del history.readings[0].records[-3:]
    assert anomalies(history) == []


def test_a_loss_without_a_known_offset_is_found() -> None:
    history = sound()
    history.send("c", KEY, "c0").acknowledge()
    assert kinds(history) == {Kind.UNSEEN}


def test_a_producer_whose_records_change_places_is_found() -> None:
    history = sound()
    history.sends[4], history.sends[6] = history.sends[6], history.sends[4]
    assert kinds(history) == {Kind.NONMONOTONIC_SEND}


def test_a_record_in_doubt_that_lands_after_a_later_one_is_found() -> None:
    history = History()
    history.send("a", KEY, 0)
    history.send("a", KEY, 1).acknowledge(0)
    final = history.reading("final", KEY, is_complete=True)
    final.got(0, 1)
    final.got(1, 0)
    assert kinds(history) == {Kind.NONMONOTONIC_SEND}


def test_a_reader_that_goes_backwards_is_found() -> None:
    history = sound()
    records = history.readings[0].records
    records[3], records[4] = records[4], records[3]
    assert Kind.NONMONOTONIC_POLL in kinds(history)


def test_a_reader_that_passes_over_a_record_is_found() -> None:
    history = sound()
    del history.readings[0].records[3]
    assert kinds(history) == {Kind.POLL_SKIP}


def test_anomalies_are_counted_and_told_in_few_words() -> None:
    history = sound()
    for reading in history.readings:
        del reading.records[-8:]
    (found,) = anomalies(history)
    assert summary([found]) == {"unseen": 1}
    assert str(found) == "unseen in t-0: final read everything and did not see a6, b6, a7, b7, a8 and 3 more"


def test_of_many_anomalies_a_few_of_each_kind_are_told() -> None:
    history = sound()
    for offset in range(20, 28):
        history.readings[1].got(offset, f"nobody's {offset}")
    lines = told(anomalies(history))
    assert len(lines) == 6 and lines[-1] == "unwritten-read: 3 more"


def test_every_kind_has_a_planted_case_above() -> None:
    text = Path(__file__).read_text()
    assert [kind for kind in Kind if f"Kind.{kind.name}" not in text] == []


def test_a_send_is_in_doubt_until_its_producer_is_told() -> None:
    assert History().send("a", KEY, 1).told is Told.UNKNOWN
