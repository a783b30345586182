"""The last stable offset of a compacted log may lie at an offset that cleaning has removed."""

from __future__ import annotations

import pytest

from moldau.protocol.record_batch import ATTRIBUTES_POSITION, CONTROL_BIT, TRANSACTIONAL_BIT
from tests.simulation.invariants.observation import StoredBatch
from tests.simulation.invariants.stable_offset import begins_before_what_is_left

PRODUCER_ID = 7


def batch(offset: int, *, is_marker: bool = False, producer_id: int = PRODUCER_ID) -> StoredBatch:
    head = bytearray(61)
    head[ATTRIBUTES_POSITION + 1] = TRANSACTIONAL_BIT | (CONTROL_BIT if is_marker else 0)
    return StoredBatch(offset, offset, 0, 0, producer_id, 0, 0, 0, 0, 0, 61, bytes(head), True, False)


@pytest.mark.parametrize(
    ("offset", "may_be"),
    [
        pytest.param(49, False, id="before the marker of the transaction before"),
        pytest.param(50, False, id="at that marker"),
        pytest.param(51, True, id="behind it"),
        pytest.param(55, False, id="in a batch of another producer, which is left"),
        pytest.param(57, True, id="before the first record that is left"),
        pytest.param(58, False, id="at that record"),
    ],
)
def test_a_transaction_begins_in_a_gap_between_its_marker_and_the_one_before(offset: int, may_be: bool) -> None:
    batches = [batch(50, is_marker=True), batch(55, producer_id=8), batch(58), batch(61, is_marker=True)]
    assert begins_before_what_is_left(batches, 58, offset) is may_be


def test_a_transaction_whose_marker_is_committed_began_nowhere() -> None:
    batches = [batch(50, is_marker=True), batch(61, is_marker=True)]
    assert begins_before_what_is_left(batches, 61, 55)
    assert not begins_before_what_is_left(batches, 62, 55)
