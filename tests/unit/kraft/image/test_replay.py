"""Metadata transactions: what one holds counts when it ends, or never."""

from __future__ import annotations

import pytest

from moldau.kraft.image.replay import Replay
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.records.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from tests.unit.kraft.image.images import provenance, topic

BEGIN, END, ABORT = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()


def test_records_count_at_the_end_of_their_transaction() -> None:
    replay = Replay()
    replay.replay([BEGIN, *topic("a", 7)], provenance(3))
    assert replay.in_transaction and replay.image.topics.by_name("a") is None
    delta = replay.replay([END], provenance(4))
    assert replay.image.topics.by_name("a") is not None and list(delta.topics.created.values()) == ["a"]
    assert not replay.in_transaction


def test_an_aborted_transaction_leaves_nothing() -> None:
    replay = Replay()
    replay.replay([*topic("kept", 6), BEGIN, *topic("a", 7)], provenance(5))
    replay.replay([ABORT, *topic("after", 8)], provenance(8))
    assert [name for name in ("kept", "a", "after") if name in replay.image.topics.ids] == ["kept", "after"]
    assert replay.image.provenance.end_offset == 8


@pytest.mark.parametrize("records", [[END], [ABORT], [BEGIN, BEGIN]])
def test_transactions_that_make_no_sense_are_refused(records: list[object]) -> None:
    with pytest.raises(MalformedMessage):
        Replay().replay(records, provenance(1))
