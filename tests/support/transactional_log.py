"""Logs with transactions, drawn by hypothesis, and what a read_committed consumer sees of them.

The consumer here is a model that looks at batches in order, as a client does: it knows nothing of indexes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from moldau.protocol.compression import Codec
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_builder import Record, build_batch
from tests.support.segments import EPOCH

TIME_MS = 1_700_000_000_000
PRODUCERS = 3


@dataclass(slots=True)
class Written:
    """A batch with its bytes and offsets, and its role in a transaction."""

    data: bytes
    base_offset: int
    next_offset: int
    producer_id: int | None = None
    ends: str | None = None
    """"commit" or "abort" for a marker."""


@dataclass(slots=True)
class TransactionalLog:
    """Batches in order."""

    batches: list[Written] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    end_offset: int = 0

    def append(self, count: int, producer_id: int | None = None, codec: Codec = Codec.NONE) -> None:
        records = [
            Record(b"k%d" % (number % 7), b"value %d" % number, TIME_MS + number)
            for number in range(self.end_offset, self.end_offset + count)
        ]
        sequence = -1
        if producer_id is not None:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + count
        data = build_batch(
            records,
            base_offset=self.end_offset,
            codec=codec,
            producer_id=-1 if producer_id is None else producer_id,
            producer_epoch=-1 if producer_id is None else 0,
            base_sequence=sequence,
            is_transactional=producer_id is not None,
            partition_leader_epoch=EPOCH,
        )
        self._add(Written(data, self.end_offset, self.end_offset + count, producer_id))

    def end(self, producer_id: int, *, commits: bool) -> None:
        data = end_transaction_marker(
            commits=commits,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=TIME_MS + self.end_offset,
            base_offset=self.end_offset,
            partition_leader_epoch=EPOCH,
        )
        ends = "commit" if commits else "abort"
        self._add(Written(data, self.end_offset, self.end_offset + 1, producer_id, ends))

    def _add(self, written: Written) -> None:
        self.batches.append(written)
        self.end_offset = written.next_offset

    def open_at(self, high_watermark: int) -> dict[int, int]:
        """The first offset of each transaction whose marker is not below the high watermark."""
        opened: dict[int, int] = {}
        for each in self.batches:
            if each.base_offset >= high_watermark or each.producer_id is None:
                continue
            if each.ends:
                opened.pop(each.producer_id, None)
            else:
                opened.setdefault(each.producer_id, each.base_offset)
        return opened

    def last_stable_offset(self, high_watermark: int) -> int:
        return min([*self.open_at(high_watermark).values(), high_watermark])

    def committed(self, high_watermark: int) -> list[int]:
        """The offsets that a read_committed consumer is given."""
        limit = self.last_stable_offset(high_watermark)
        shown: list[int] = []
        pending: dict[int, list[int]] = {}
        for each in self.batches:
            if each.base_offset >= limit:
                break
            offsets = list(range(each.base_offset, each.next_offset))
            if each.producer_id is None:
                shown += offsets
            elif each.ends is None:
                pending.setdefault(each.producer_id, []).extend(offsets)
            else:
                held = pending.pop(each.producer_id, [])
                shown += held if each.ends == "commit" else []
        # Transactions that began below the last stable offset have ended, some of them past it.
        for each in self.batches:
            if each.base_offset >= limit and each.ends and each.producer_id in pending:
                held = pending.pop(each.producer_id)
                shown += held if each.ends == "commit" else []
        return sorted(shown)


@st.composite
def transactional_logs(draw: st.DrawFn) -> TransactionalLog:
    """Batches of some producers with and without transactions; some transactions never end."""
    log = TransactionalLog()
    opened: set[int] = set()
    for _ in range(draw(st.integers(1, 30))):
        producer_id = draw(st.integers(0, PRODUCERS))
        if producer_id == PRODUCERS:
            log.append(draw(st.integers(1, 4)), codec=draw(st.sampled_from(Codec)))
        elif producer_id in opened and draw(st.booleans()):
            opened.discard(producer_id)
            log.end(producer_id, commits=draw(st.booleans()))
        else:
            opened.add(producer_id)
            log.append(draw(st.integers(1, 4)), producer_id, codec=draw(st.sampled_from(Codec)))
    return log
