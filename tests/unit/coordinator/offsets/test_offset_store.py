"""Which offsets count, held against Apache Kafka's rule: of a partition's visible records the last in the log."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from moldau.coordinator.group.records import CommittedOffset, OffsetChange, OffsetsLoaded, TransactionEnded
from moldau.coordinator.offsets.offset_store import (
    OffsetSkippedDeletedRecords,
    OffsetStore,
    OffsetWentBack,
    StoreChange,
)

GROUPS = ("g", "h")
PRODUCERS = (7, 8, 9)
Place = tuple[str, str, int]


class Placed(NamedTuple):
    record_offset: int
    offset: int


class Model:
    """Remembers where each record is in the log, as Apache Kafka does, and compares that when a transaction ends."""

    def __init__(self) -> None:
        self.visible: dict[Place, Placed] = {}
        self.pending: dict[int, dict[Place, Placed]] = {}

    def take(self, change: StoreChange, record_offset: int) -> None:
        match change:
            case OffsetChange(group_id, topic, partition, value, producer_id):
                place = (group_id, topic, partition)
                if value is None:
                    self.visible.pop(place, None)
                    for offsets in self.pending.values():
                        offsets.pop(place, None)
                elif producer_id < 0:
                    self.visible[place] = Placed(record_offset, value.offset)
                else:
                    self.pending.setdefault(producer_id, {})[place] = Placed(record_offset, value.offset)
            case OffsetsLoaded(groups, producer_id):
                for group_id, loaded in groups.items():
                    for (topic, partition), committed in loaded.items():
                        self.take(OffsetChange(group_id, topic, partition, committed, producer_id), record_offset)
            case TransactionEnded(producer_id, is_commit):
                for place, placed in self.pending.pop(producer_id, {}).items():
                    former = self.visible.get(place)
                    if is_commit and (former is None or former.record_offset < placed.record_offset):
                        self.visible[place] = placed

    def offsets(self, group_id: str) -> dict[tuple[str, int], int]:
        return {place[1:]: placed.offset for place, placed in self.visible.items() if place[0] == group_id}

    def unstable(self, group_id: str) -> set[tuple[str, int]]:
        return {place[1:] for offsets in self.pending.values() for place in offsets if place[0] == group_id}


def some_change(random: Random, offset: int) -> StoreChange:
    group_id, partition = random.choice(GROUPS), random.randint(0, 2)
    producer_id = random.choice((-1, *PRODUCERS))
    kind = random.random()
    if kind < 0.1:
        return OffsetChange(group_id, "t", partition, None)
    if kind < 0.35:
        return TransactionEnded(random.choice(PRODUCERS), random.random() < 0.6)
    if kind < 0.5:
        offsets = {("t", index): CommittedOffset(offset) for index in random.sample(range(3), 2)}
        return OffsetsLoaded({group_id: offsets}, producer_id)
    return OffsetChange(group_id, "t", partition, CommittedOffset(offset), producer_id)


def check(store: OffsetStore, model: Model, *, is_latest: bool) -> None:
    for group_id in GROUPS:
        group = store.latest_offsets(group_id) if is_latest else store.committed_offsets(group_id)
        assert {key: value.offset for key, value in group.offsets.items()} == model.offsets(group_id)
        assert set(group.pending) == model.unstable(group_id)
        assert set(group.partitions()) == {key for key in group.partitions() if group.has(key)}


@pytest.mark.parametrize("seed", range(200))
def test_it_shows_what_the_last_visible_record_says(seed: int) -> None:
    random = Random(seed)
    store, committed, latest = OffsetStore(), Model(), Model()
    log: list[StoreChange] = []
    committed_end_offset = 0
    for end_offset in range(1, 60):
        change = some_change(random, end_offset)
        log.append(change)
        # The store may keep the dictionaries of a change that is loaded.
        store.append(copy_of(change), end_offset)
        latest.take(change, end_offset)
        check(store, latest, is_latest=True)
        if random.random() < 0.5:
            new_end_offset = random.randint(committed_end_offset, end_offset)
            for offset in range(committed_end_offset, new_end_offset):
                committed.take(log[offset], offset + 1)
            committed_end_offset = new_end_offset
            store.commit(committed_end_offset)
        check(store, committed, is_latest=False)
        assert store.count == len(committed.visible)
        assert {group_id for group_id in GROUPS if not store.latest_offsets(group_id).is_empty} <= set(store.groups())


def copy_of(change: StoreChange) -> StoreChange:
    if isinstance(change, OffsetsLoaded):
        return change._replace(offsets={group_id: dict(offsets) for group_id, offsets in change.offsets.items()})
    return change


def test_nothing_is_left_of_a_group_whose_transactions_were_aborted() -> None:
    store = OffsetStore()
    store.append(OffsetChange("g", "t", 0, CommittedOffset(5), 7), 1)
    store.append(TransactionEnded(7, False), 2)
    store.commit(1)
    assert store.groups() == ["g"]
    store.commit(2)
    assert store.groups() == []
    assert store.committed_offsets("g").is_empty


def test_an_offset_below_the_one_before_is_returned_once_it_is_committed() -> None:
    store = OffsetStore()
    for offset, end_offset in ((5, 1), (9, 2), (3, 3), (3, 4)):
        store.append(OffsetChange("g", "t", 0, CommittedOffset(offset, commit_ms=end_offset)), end_offset)
    store.append(OffsetChange("g", "t", 0, CommittedOffset(1), 7), 5)
    assert store.commit(2) == []
    assert store.commit(3) == [OffsetWentBack("g", "t", 0, 6, 3)]
    assert store.commit(5) == [], "the same offset again, and one of an open transaction"


def test_an_offset_that_goes_over_records_that_were_gone_is_returned() -> None:
    start = 0
    store = OffsetStore(lambda topic, partition: start if (topic, partition) == ("t", 0) else -1)

    def committed(offset: int, end_offset: int, partition: int = 0) -> list[object]:
        store.append(OffsetChange("g", "t", partition, CommittedOffset(offset, commit_ms=end_offset)), end_offset)
        return list(store.commit(end_offset))

    assert committed(2, 1) == committed(4, 2) == []
    start = 7
    assert committed(5, 3) == [], "still below the start"
    assert committed(9, 4) == [OffsetSkippedDeletedRecords("g", "t", 0, 2, 4)]
    assert committed(12, 5) == [], "once"
    assert committed(0, 6, 1) == committed(50, 7, 1) == [], "no replica of it is here"
    start = 12
    assert committed(20, 8) == [], "what was gone had been committed"
    assert committed(1, 9) == [OffsetWentBack("g", "t", 0, 19, 9)]
    assert committed(12, 10) == [OffsetSkippedDeletedRecords("g", "t", 0, 11, 10)], "the first offset that is left"


def test_an_offset_of_a_transaction_is_compared_when_the_transaction_is_committed() -> None:
    store = OffsetStore(lambda topic, partition: 7)

    def in_transaction(offset: int, end_offset: int, *, is_commit: bool) -> list[object]:
        store.append(OffsetChange("g", "t", 0, CommittedOffset(offset, commit_ms=end_offset), 7), end_offset)
        assert store.commit(end_offset) == [], "pending"
        store.append(TransactionEnded(7, is_commit), end_offset + 1)
        return list(store.commit(end_offset + 1))

    assert in_transaction(9, 1, is_commit=True) == [], "the first one"
    assert in_transaction(4, 3, is_commit=False) == [], "aborted"
    assert in_transaction(4, 5, is_commit=True) == [OffsetWentBack("g", "t", 0, 5, 5)]
    assert in_transaction(8, 7, is_commit=True) == [OffsetSkippedDeletedRecords("g", "t", 0, 3, 7)]
    store.append(OffsetChange("g", "t", 0, CommittedOffset(2, commit_ms=9), 7), 9)
    store.append(OffsetChange("g", "t", 0, CommittedOffset(12, commit_ms=10)), 10)
    store.append(TransactionEnded(7, True), 11)
    assert store.commit(11) == [], "the later commit outside of the transaction stays in force"


def test_a_reading_of_the_latest_offsets_changes_nothing() -> None:
    store = OffsetStore()
    store.append(OffsetChange("g", "t", 0, CommittedOffset(5), 7), 1)
    store.append(OffsetsLoaded({"g": {("t", 1): CommittedOffset(6)}}), 2)
    store.append(TransactionEnded(7, True), 3)
    for _ in range(2):
        assert {key: value.offset for key, value in store.latest_offsets("g").offsets.items()} == {
            ("t", 0): 5,
            ("t", 1): 6,
        }
    store.commit(2)
    assert list(store.committed_offsets("g").pending) == [("t", 0)]
    assert list(store.committed_offsets("g").offsets) == [("t", 1)]
