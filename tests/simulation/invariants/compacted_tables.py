"""P10: compaction keeps the latest committed record of every key, and changes none that it keeps.

For a moment of a replica's log, up to its high watermark (of a tiered one from the start of its local part on):

    a record that is there is the one that was committed at its offset
    the latest committed record of a key is there, or it is a tombstone that was there before
    a replica that has had a tombstone, and has dropped it, holds no older record of that key
    while a record of an aborted transaction is there, so is the transaction's marker, if it was there before
    a read_committed consumer, by what the log lists as aborted, gets no aborted record, and every committed one

The oracle learns from leaders what is committed before the cleaner can have touched it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_reader import records_of
from moldau.storage.segment.transaction_index import CorruptTransactionIndex
from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, StoredBatch, Violation


class Keyed(NamedTuple):
    """A record as it was committed."""

    key: bytes
    value: bytes | None


@dataclass(slots=True)
class Table:
    """All that was ever committed of one compacted partition."""

    end_offset: int = 0
    records: dict[int, Keyed] = field(default_factory=dict)
    offsets: dict[bytes, list[int]] = field(default_factory=dict)
    """Of each key, without those of aborted and of open transactions; rising."""
    opened: dict[int, list[int]] = field(default_factory=dict)
    """By producer id: the offsets of its open transaction."""
    aborted: dict[int, int] = field(default_factory=dict)
    """The marker of each aborted record, by offset."""
    is_stale: bool = False
    """A leader is, or was, not learned from: what has superseded the known records is not known."""
    has_gaps: bool = False
    """A leader had committed what it did not show: a rotten batch, or records that it had cleaned when it was looked at
    for the first time."""

    def learn(self, leader: Replica) -> None:
        """Take what lies between what is known and the leader's high watermark."""
        high_watermark = leader.partition.high_watermark
        self.is_stale = False
        new: list[StoredBatch] = []
        for batch in reversed(leader.content.batches):
            if batch.last_offset < self.end_offset:
                break
            if batch.last_offset < high_watermark:
                new.append(batch)
        if high_watermark > self.end_offset:
            is_cleaned = (leader.partition.log.first_dirty_offset or 0) > self.end_offset
            self.has_gaps = self.has_gaps or is_cleaned or not new or new[-1].base_offset > self.end_offset
        for batch in reversed(new):
            self._take(leader, batch)
        self.end_offset = max(self.end_offset, high_watermark)

    def _take(self, leader: Replica, batch: StoredBatch) -> None:
        if batch.is_marker:
            for offset in self.opened.pop(batch.producer_id, ()):
                if batch.is_abort:
                    self.aborted[offset] = batch.last_offset
                else:
                    self._decide(offset)
            return
        records = list(keyed_records(leader, batch))
        self.has_gaps = self.has_gaps or not records
        for offset, record in records:
            self.records[offset] = record
            if batch.is_transactional:
                self.opened.setdefault(batch.producer_id, []).append(offset)
            else:
                self._decide(offset)

    def _decide(self, offset: int) -> None:
        known = self.offsets.setdefault(self.records[offset].key, [])
        known.insert(bisect_left(known, offset), offset)


class CompactedTables:
    def __init__(self) -> None:
        self._tables: dict[PartitionKey, Table] = {}
        self._compared: dict[tuple[int, int, PartitionKey], object] = {}
        self._had: dict[tuple[int, PartitionKey], dict[int, None]] = {}
        """By replica: the tombstones and the markers of transactions that it has had."""
        self._missed: set[tuple[PartitionKey, bytes]] = set()

    def check(self, seen: Observation) -> None:
        compacted = [
            (key, replica)
            for key, replica in seen.all_replicas()
            if replica.is_compacted and replica.partition.log.failure is None
        ]
        for key, replica in compacted:
            if replica.partition.leadership is not None:
                self._tables.setdefault(key, Table()).learn(replica)
        for key, replica in compacted:
            table, log = self._tables.get(key), replica.partition.log
            shape = tuple((each.base_offset, each.size) for each in log.segments[:-1])
            place = (replica.node_id, replica.life, key)
            if table is None:
                continue
            table.is_stale = table.is_stale or is_rotten_anywhere(seen, replica)
            known_committed = max(replica.partition.high_watermark, log.first_dirty_offset or 0)
            if table.is_stale or known_committed > table.end_offset:
                continue  # the replica may have heard more of a leader that died before it was looked at
            if self._compared.get(place) != shape:
                self._compared[place] = shape
                self._compare(key, table, replica)

    def _compare(self, key: PartitionKey, table: Table, replica: Replica) -> None:
        log = replica.partition.log
        start_offset = max(log.log_start_offset, log.local_start_offset)
        end_offset = min(replica.partition.high_watermark, table.end_offset)
        batches = [each for each in replica.content.batches if start_offset <= each.base_offset < end_offset]
        markers = {each.last_offset for each in batches if each.is_marker}
        had = self._had.setdefault((replica.node_id, key), {})
        for offset in [each for each in had if each >= log.end_offset]:
            del had[offset]  # a crash took it, and the leader may have dropped it since
        had.update(dict.fromkeys(markers))
        undecided: set[int] = set()
        held: dict[int, Keyed] = {}
        for batch in batches:
            if not batch.is_marker:
                held.update(keyed_records(replica, batch))
        for offset, record in held.items():
            known = table.records.get(offset)
            if known != record and offset < end_offset and not (known is None and table.has_gaps):
                raise Violation(f"{replica} holds {record} at {offset}; committed is {known}")
            marker = table.aborted.get(offset, end_offset)
            if marker < end_offset and marker not in markers:
                if marker in had:
                    raise Violation(f"{replica} has dropped the marker at {marker}, and holds the record at {offset}")
                undecided.add(offset)  # it was out of sync while the marker came and went (decision 15)
        check_visible(table, replica, [each for each in batches if each.is_transactional], end_offset, undecided)
        for offsets in table.offsets.values():
            if start_offset <= offsets[-1] < end_offset:
                self._compare_key(key, replica, table, offsets, held, had)

    def table(self, key: PartitionKey) -> Table | None:
        """What was ever committed of a partition; None if nothing is known yet."""
        return self._tables.get(key)

    def is_missed(self, key: PartitionKey, record_key: bytes) -> bool:
        """Whether a replica was out of sync while a tombstone of this record key came and went: as in Apache Kafka, it
        may keep an older record (decision 15), and show it once it leads."""
        return (key, record_key) in self._missed

    def _compare_key(
        self,
        key: PartitionKey,
        replica: Replica,
        table: Table,
        offsets: list[int],
        held: dict[int, Keyed],
        had: dict[int, None],
    ) -> None:
        """`offsets`: of all committed records of one key. A replica that has not got the latest may lack any other: its
        leader has dropped it already."""
        latest = offsets[-1]
        if latest in held:
            if held[latest].value is None:
                had[latest] = None
            return
        record = table.records[latest]
        if record.value is not None and not table.has_gaps:
            raise Violation(f"{replica} lacks {record} at {latest}, the latest of its key")
        back = [each for each in offsets if each in held]
        if latest not in had and back:
            self._missed.add((key, table.records[latest].key))
        if latest in had and back:
            raise Violation(
                f"{replica} has dropped the tombstone at {latest}, and holds {held[back[-1]]} at {back[-1]}"
            )


def check_visible(
    table: Table, replica: Replica, batches: list[StoredBatch], end_offset: int, undecided: Collection[int]
) -> None:
    """Of the transactions that have ended before `end_offset`, by the index of the log from its start on; without the
    `undecided` records, whose markers the replica has never had.
    """
    log = replica.partition.log
    try:
        found = log.aborted_transactions(log.log_start_offset, end_offset)
    except (CorruptTransactionIndex, OSError):
        return  # told by the rule about the index
    listed: dict[int, list[tuple[int, int]]] = {}
    """By producer: the first offset of an aborted transaction, and the last offset of those up to it."""
    for each in sorted(found, key=lambda each: each.first_offset):
        if each.last_offset < end_offset:
            spans = listed.setdefault(each.producer_id, [])
            spans.append((each.first_offset, max(each.last_offset, spans[-1][1]) if spans else each.last_offset))
    for batch in batches:
        spans = listed.get(batch.producer_id, [])
        place = bisect_right(spans, batch.last_offset, key=itemgetter(0))
        is_skipped = place > 0 and batch.last_offset <= spans[place - 1][1]
        for offset in range(batch.base_offset, batch.last_offset + 1):
            record = table.records.get(offset)
            if batch.is_marker or record is None or table.has_gaps or offset in undecided:
                continue
            is_aborted = table.aborted.get(offset, end_offset) < end_offset
            if is_aborted and not is_skipped:
                raise Violation(f"{replica} shows {record} at {offset}, of an aborted transaction")
            if is_skipped and not is_aborted:
                raise Violation(f"{replica} lists {record} at {offset} as aborted, which is not")


def is_rotten_anywhere(seen: Observation, replica: Replica) -> bool:
    """Whether the partition has a replica on a disk that has rotted: such a leader is not learned from."""
    topic, index = replica.partition.topic, replica.partition.index
    found = [(node, node.broker.replicas.get(topic, index)) for node in seen.nodes]
    return any(each is not None and node.disk.is_rotten(each.log.directory) for node, each in found)


def keyed_records(replica: Replica, batch: StoredBatch) -> Iterator[tuple[int, Keyed]]:
    """The records of a batch with their offsets; of none if the page cache has lost it."""
    path = f"{replica.partition.log.directory}/{batch.segment_offset:020d}.log"
    stored = bytes(replica.disk.peek(path)[batch.position : batch.position + batch.size])
    if stored and batch.is_sound:
        for record in records_of(stored, 0, parse_header(stored, 0)):
            yield record.offset, Keyed(record.key or b"", record.value)
