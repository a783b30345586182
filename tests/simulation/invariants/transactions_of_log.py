"""P6: the open transactions, the last stable offset and the transaction index of a replica are those of its log."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.invariants.observation import (
    LogContent,
    Observation,
    PartitionKey,
    Replica,
    StoredBatch,
    Violation,
)


class Ended(NamedTuple):
    """A transaction with its marker in the log."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Loaded:
    """Up to where one log was read when its replica began, or was cut: of markers before that it may have forgotten
    that they are not committed yet."""

    def __init__(self) -> None:
        self.end_offset = 0
        self._count = 0
        self._last: StoredBatch | None = None
        self._leader_epoch = -2  # of no replica

    def look(self, replica: Replica) -> None:
        batches, leader_epoch = replica.content.batches, replica.partition.leader_epoch
        is_cut = self._count > len(batches) or (self._count and batches[self._count - 1] is not self._last)
        if is_cut or leader_epoch != self._leader_epoch:
            self.end_offset = replica.partition.log.end_offset
        self._count, self._last, self._leader_epoch = len(batches), batches[-1] if batches else None, leader_epoch


class TransactionsOfLog:
    def __init__(self) -> None:
        self._looked: dict[tuple[int, int, PartitionKey], object] = {}
        self._loaded: dict[tuple[int, int, PartitionKey], Loaded] = {}

    def check(self, seen: Observation) -> None:
        for key, replica in seen.all_replicas():
            log, batches = replica.partition.log, replica.content.batches
            place = (replica.node_id, replica.life, key)
            newest = (
                (log.end_offset, log.log_start_offset, replica.partition.high_watermark),
                batches[-1].identity if batches else None,
            )
            loaded = self._loaded.setdefault(place, Loaded())
            loaded.look(replica)
            if log.failure is not None or self._looked.get(place) == newest:
                continue
            self._looked[place] = newest
            open_offsets, ended = transactions_of(replica.content)
            if open_offsets or ended or log.producers.first_unstable_offset() is not None:
                check_open(replica, open_offsets)
                check_last_stable_offset(replica, open_offsets, ended, loaded.end_offset)
                check_index(replica, [each for each in ended if each.is_aborted])


def transactions_of(content: LogContent) -> tuple[dict[int, int], list[Ended]]:
    """First offset by producer id of what is open, and what has ended."""
    open_offsets: dict[int, int] = {}
    ended = []
    for batch in content.batches:
        if batch.is_of_transaction:
            open_offsets.setdefault(batch.producer_id, batch.base_offset)
        elif batch.marker is not None and batch.producer_id in open_offsets:
            first_offset = open_offsets.pop(batch.producer_id)
            ended.append(Ended(batch.producer_id, first_offset, batch.base_offset, not batch.marker.is_commit))
    return open_offsets, ended


def check_open(replica: Replica, open_offsets: dict[int, int]) -> None:
    log = replica.partition.log
    known = {
        entry.producer_id: entry.open_transaction_offset
        for entry in log.producers.entries.values()
        if entry.open_transaction_offset >= 0
    }
    start = log.log_start_offset
    for producer_id in known.keys() | open_offsets.keys():
        expected, told = open_offsets.get(producer_id), known.get(producer_id)
        # Of a transaction that began before the log start the batches may be deleted, all or the first; and a start
        # after that may know of its later batches alone.
        began_before = (told is not None and told < start) or (expected is not None and expected < start)
        if told != expected and not began_before:
            raise Violation(f"{replica}: producer {producer_id}: open at {told}, in the log {expected}")


def check_last_stable_offset(
    replica: Replica, open_offsets: dict[int, int], ended: list[Ended], loaded_end_offset: int
) -> None:
    """Markers past the high watermark do not count; those before `loaded_end_offset` may."""
    partition, start = replica.partition, replica.partition.log.log_start_offset
    high_watermark = partition.high_watermark
    undecided = [each.first_offset for each in ended if each.last_offset >= high_watermark]
    sure = [each.first_offset for each in ended if each.last_offset >= max(high_watermark, loaded_end_offset)]
    highest = min([high_watermark, *(first for first in (*open_offsets.values(), *sure) if first >= start)])
    lowest = min([high_watermark, start] if start else [high_watermark, *open_offsets.values(), *undecided])
    if not lowest <= partition.last_stable_offset <= max(highest, start):
        raise Violation(
            f"{replica}: last stable offset {partition.last_stable_offset}, by its log from {lowest} to {highest}"
        )


def check_index(replica: Replica, aborted: list[Ended]) -> None:
    log = replica.partition.log
    start = log.log_start_offset
    indexed = {
        (each.producer_id, each.last_offset): each.first_offset
        for each in log.aborted_transactions(start, log.end_offset)
    }
    in_log = {(each.producer_id, each.last_offset): each.first_offset for each in aborted if each.last_offset >= start}
    for key in indexed.keys() | in_log.keys():
        told, expected = indexed.get(key), in_log.get(key)
        began_before = (told is not None and told < start) or (expected is not None and expected < start)
        if told != expected and not began_before:
            raise Violation(
                f"{replica}: the transaction (producer, marker) {key} began at {expected}, indexed is {told}"
            )
