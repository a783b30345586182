"""Which batches of a reply are committed, and which answers to a Fetch end the slice."""

from __future__ import annotations

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.messages.fetch import AbortedTransaction, FetchResponse
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.client.cluster import BrokersUnavailable
from moldau.tables.origins.broker_batches import BrokerBatches, without_aborted
from moldau.tables.origins.port import Slice, StoredSegment
from moldau.tables.refusals import DataLost
from tests.support.scripted_leader import SETTINGS, TOPIC_ID, ScriptedLeader, batches


def reply(*batches: tuple[int, int, str]) -> bytes:
    """(base offset, producer, kind) of batches of one record: data, transactional or marker."""
    return b"".join(
        build_batch(
            [Record(b"k", b"v", 1)],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=kind != "data",
            is_control=kind == "marker",
        )
        for offset, producer, kind in batches
    )


def offsets(records: bytes, *aborted: tuple[int, int]) -> list[int]:
    """The offsets of the data that are left, with (producer, first offset) of aborted transactions."""
    found = list(iterate_batches(records))
    named = [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted]
    return [header.base_offset for _, header in without_aborted(found, named) if not header.is_control]


def test_batches_from_the_first_offset_to_the_marker_are_left_out() -> None:
    records = reply((0, 1, "part"), (1, 2, "part"), (2, 1, "data"), (3, 1, "marker"), (4, 1, "part"), (5, 2, "marker"))
    assert offsets(records) == [0, 1, 2, 4]
    assert offsets(records, (1, 0)) == [1, 2, 4]
    assert offsets(records, (2, 1), (1, 0)) == [2, 4]
    assert offsets(records, (1, 4)) == [0, 1, 2]
    assert offsets(records, (1, 0), (1, 4)) == [
        1,
        2,
    ]  # of one producer: findings/read_committed_gives_aborted_records.sh


def test_a_transaction_that_began_before_the_reply_is_left_out() -> None:
    assert offsets(reply((10, 1, "part"), (11, 1, "marker"), (12, 1, "part")), (1, 3)) == [12]


def read(end: int) -> list[int]:
    """The base offsets of the batches of orders-0 from 0 to `end`."""
    source = BrokerBatches(SETTINGS, TOPIC_ID, False)
    wanted = Slice("orders", 0, source, StoredSegment(0, end, end, "orders-0", False), 0, end, None, 0, end)
    return [header.base_offset for _, header, _, _ in source.batches(wanted)]


def test_records_that_remote_storage_returns_late_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = ScriptedLeader(monkeypatch, end=4, local_start=3)
    leader.answers = [leader.part(batches([0])), leader.part(), leader.part(), leader.part(batches([1, 2, 3]))]
    assert read(4) == [0, 1, 2, 3]
    assert leader.fetched_offsets == [0, 1, 1, 1] and leader.connection_count == 1


def test_records_that_remote_storage_does_not_return_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = ScriptedLeader(monkeypatch, end=4, local_start=3)
    leader.answers = [leader.part(batches([0])), leader.part()]
    with pytest.raises(BrokersUnavailable, match="orders-0, offsets 0 to 4: offset 1 is in remote storage"):
        read(4)
    assert 1.5 < leader.now_s < 4


@pytest.mark.parametrize("list_offsets_version", [7, 11])
def test_a_slice_whose_last_batches_were_compacted_ends(
    monkeypatch: pytest.MonkeyPatch, list_offsets_version: int
) -> None:
    leader = ScriptedLeader(monkeypatch, end=4, local_start=1)
    leader.list_offsets_version = list_offsets_version
    leader.answers = [leader.part(batches([0])), leader.part()]
    assert read(4) == [0] and leader.fetched_offsets == [0, 1]


def test_a_log_that_has_become_shorter_has_lost_data(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = ScriptedLeader(monkeypatch, end=4)
    leader.answers = [leader.part(batches([0])), leader.part(end=2)]
    with pytest.raises(DataLost, match="orders-0, offsets 0 to 4: the log ends at 2 now"):
        read(4)


def test_a_throttled_read_waits_as_long_as_the_broker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = ScriptedLeader(monkeypatch, end=2)
    throttled = FetchResponse(throttle_time_ms=4_000)
    leader.answers = [leader.part(batches([0])), throttled, throttled, leader.part(), leader.part(batches([1]))]
    leader.local_start = 2
    assert read(2) == [0, 1]
    assert leader.fetched_offsets == [0, 1, 1, 1, 1] and leader.connection_count == 1
    assert 8 <= leader.now_s < 11


def test_a_long_throttle_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = ScriptedLeader(monkeypatch, end=1)
    leader.answers = [FetchResponse(throttle_time_ms=60_000), leader.part(batches([0]))]
    with pytest.warns(UserWarning, match="orders-0, offsets 0 to 1: a quota of this client is exceeded"):
        assert read(1) == [0]
