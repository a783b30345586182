"""All that was ever appended to a compacted log, as a log that is never cleaned would hold it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.protocol.compression import Codec
from moldau.protocol.record_builder import Record

NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1


class Appended(NamedTuple):
    """A batch as it was appended."""

    base_offset: int
    records: tuple[Record, ...]
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    commits: bool | None = None
    """Of a marker: whether the transaction is committed. None for data."""
    codec: Codec = Codec.NONE
    leader_epoch: int = 0

    @property
    def is_marker(self) -> bool:
        return self.commits is not None

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.records) - 1

    @property
    def last_sequence(self) -> int:
        return self.base_sequence + len(self.records) - 1


@dataclass(slots=True)
class ProducerView:
    """What a log has to know of a producer."""

    epoch: int = -1
    last_sequence: int = NO_SEQUENCE
    last_offset: int = -1
    last_data_offset: int = -1
    opened: list[Appended] = field(default_factory=list)
    """The batches of its open transaction."""


@dataclass(slots=True)
class View:
    """What the batches up to an offset amount to."""

    end_offset: int
    committed: dict[int, Record] = field(default_factory=dict)
    """By offset; without those of aborted and of open transactions."""
    latest: dict[bytes, int] = field(default_factory=dict)
    """The offset of the latest committed record of each key."""
    markers: dict[int, int] = field(default_factory=dict)
    """Of each record of a transaction that has ended: the offset of its marker."""
    ended: list[tuple[int, int]] = field(default_factory=list)
    """Of each transaction that has ended: its first offset, and that of its marker."""
    producers: dict[int, ProducerView] = field(default_factory=dict)

    @property
    def first_open_offset(self) -> int:
        """The first offset of a transaction without a marker; if there is none, the end."""
        begun = [each.opened[0].base_offset for each in self.producers.values() if each.opened]
        return min(begun, default=self.end_offset)

    def take(self, batch: Appended) -> None:
        self.end_offset = batch.last_offset + 1
        if batch.producer_id == NO_PRODUCER:
            self._decide([batch])
            return
        producer = self.producers.setdefault(batch.producer_id, ProducerView())
        if batch.is_marker:
            if batch.producer_epoch != producer.epoch:
                producer.last_sequence = NO_SEQUENCE
            for each in producer.opened:
                offsets = range(each.base_offset, each.last_offset + 1)
                self.markers.update(dict.fromkeys(offsets, batch.base_offset))
            if producer.opened:
                self.ended.append((producer.opened[0].base_offset, batch.base_offset))
            if batch.commits:
                self._decide(producer.opened)
            producer.opened = []
        else:
            producer.last_sequence, producer.last_data_offset = batch.last_sequence, batch.last_offset
            if batch.is_transactional:
                producer.opened.append(batch)
            else:
                self._decide([batch])
        producer.epoch = batch.producer_epoch
        producer.last_offset = batch.last_offset

    def _decide(self, batches: list[Appended]) -> None:
        for batch in batches:
            for offset, record in enumerate(batch.records, batch.base_offset):
                self.committed[offset] = record
                if record.key is not None:
                    self.latest[record.key] = max(offset, self.latest.get(record.key, -1))


class Oracle:
    """It outlives the processes, and hears of a batch before the log does: a crash may come in between."""

    def __init__(self) -> None:
        self.batches: list[Appended] = []
        self.by_offset: dict[int, Appended] = {}
        """By base offset."""
        self.data: dict[int, bytes | bytearray] = {}
        """The batches as they were stored, by base offset."""
        self.committed_end = 0
        """The largest high watermark. Another replica has what is before it: a log that loses it gets it again."""
        self.start_offset = 0
        """If the log began, or began anew."""
        self.view = View(0)
        self.cleanable_end = 0
        """No log may have been cleaned at or past this offset: it was above the last stable offset, or active."""
        self.cleanable_since: list[tuple[int, int]] = []
        """(offset, wall clock in ms): from then on everything before the offset could be cleaned. Rising."""

        self.unsure_producers: dict[int, None] = {}
        """Batches of theirs were cut away. The cleaner may have removed the ones before, as in Apache Kafka: until they
        begin an epoch or write data, no log has to know them."""

    @property
    def end_offset(self) -> int:
        return self.view.end_offset

    def append(self, batch: Appended) -> None:
        assert batch.base_offset >= self.end_offset
        self.batches.append(batch)
        self.by_offset[batch.base_offset] = batch
        known = self.view.producers.get(batch.producer_id)
        if not batch.is_marker or known is None or known.epoch != batch.producer_epoch:
            self.unsure_producers.pop(batch.producer_id, None)
        self.view.take(batch)

    def cut(self, end_offset: int) -> None:
        """The log was truncated, or has lost what was not durable."""
        kept = [each for each in self.batches if each.base_offset < end_offset]
        self.unsure_producers.update(dict.fromkeys(each.producer_id for each in self.batches[len(kept) :]))
        self._begin_anew(kept, self.start_offset)
        self.view.end_offset = max(self.view.end_offset, self.start_offset)

    def restart(self, offset: int) -> None:
        """The log was emptied."""
        self.start_offset = self.cleanable_end = self.committed_end = offset
        self.cleanable_since.clear()
        self._begin_anew([], offset)

    def _begin_anew(self, batches: list[Appended], end_offset: int) -> None:
        self.batches = batches
        self.by_offset = {each.base_offset: each for each in batches}
        self.view = self.up_to(1 << 62, end_offset)

    def up_to(self, end_offset: int, begin: int = 0) -> View:
        """What a replica knows that ends there."""
        view = View(max(begin, self.start_offset))
        for batch in self.batches:
            if batch.base_offset >= end_offset:
                break
            view.take(batch)
        return view

    def may_be_cleaned(self, end_offset: int, now_ms: int) -> None:
        """Everything before an offset may be cleaned from now on."""
        if end_offset > self.cleanable_end:
            self.cleanable_end = end_offset
            self.cleanable_since.append((end_offset, now_ms))

    def cleanable_since_ms(self, offset: int) -> int | None:
        """Since when a record may have been cleaned; None if it may not."""
        return next((since_ms for end_offset, since_ms in self.cleanable_since if offset < end_offset), None)
