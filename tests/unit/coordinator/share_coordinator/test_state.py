"""Batches of delivery state are merged as Apache Kafka 4.3.1 merges them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from moldau.coordinator.share_coordinator.state import (
    NO_OFFSET,
    ShareState,
    StateBatch,
    StateUpdate,
    combined_batches,
    updated_state,
)

APACHE = [line.split() for line in Path(__file__).with_name("kafka_4_3_1_batches.txt").read_text().splitlines()]
"""Batches before, batches of a change, the start offset, and what Apache Kafka's combiner made of them; each batch is
first-last:state:count.
"""


def parsed(text: str) -> tuple[StateBatch, ...]:
    batches = []
    for each in text.split(",") if text != "none" else ():
        offsets, state, count = each.split(":")
        first, last = offsets.split("-")
        batches.append(StateBatch(int(first), int(last), int(state), int(count)))
    return tuple(batches)


def by_offset(batches: Iterable[StateBatch]) -> dict[int, tuple[int, int]]:
    """The highest (count, state) of each offset."""
    states: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(first, last + 1):
            states[offset] = max(states.get(offset, (0, 0)), (count, state))
    return states


@pytest.mark.parametrize(("before", "after", "start_offset", "combined"), APACHE)
def test_batches_are_combined_as_apache_kafka_combines_them(
    before: str, after: str, start_offset: str, combined: str
) -> None:
    result = combined_batches(parsed(before), parsed(after), int(start_offset))
    assert result == parsed(combined)
    expected = by_offset([*parsed(before), *parsed(after)])
    if len(result) > 1:
        assert by_offset(result) == {offset: state for offset, state in expected.items() if offset >= int(start_offset)}


def test_an_update_keeps_what_it_does_not_tell() -> None:
    state = ShareState(3, 4, 5, 10, 2, (StateBatch(10, 11, 2, 1),), 100, 200)
    kept = updated_state(state, StateUpdate(3, -1, NO_OFFSET, 7, (StateBatch(12, 13, 2, 1),)))
    assert kept == state._replace(delivery_complete_count=7, batches=(StateBatch(10, 13, 2, 1),))
    moved = updated_state(state, StateUpdate(3, 6, 11, 0))
    assert moved == ShareState(3, 4, 6, 11, 0, (StateBatch(11, 11, 2, 1),), 100, 200)
