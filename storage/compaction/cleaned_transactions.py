"""The transactions that are open where the cleaner is: which data is aborted, and which markers may be discarded.

The caller reports every batch in the order of the log. A marker may be discarded (once its delete horizon has passed)
where the log has no batch of its transaction before it: an earlier round has removed them all. Until then the marker
stays. Without it a reader would take an aborted record for a committed one, or wait for the end of the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from protocol.control_records import ControlRecordType, control_record_type
from protocol.primitives import BytesLike
from protocol.record_batch import BatchHeader
from protocol.record_reader import records_of
from storage.segment.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open where the cleaner is."""

    __slots__ = ("_aborted", "_coming", "_committed", "_met", "on_kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: the aborted transactions with a batch or the marker among the batches that will be reported."""
        self._coming = sorted(set(aborted), key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        """The aborted transactions that have begun, by producer id."""
        self._met: set[int] = set()
        """The producers of these transactions of which a data batch was reported."""
        self._committed: set[int] = set()
        """The producers of which a data batch was reported, in a transaction that is not aborted."""
        self.on_kept: Callable[[AbortedTransaction], None] | None = None
        """Called at the marker of each aborted transaction that still has batches, for the transaction index of the
        cleaned segment."""

    def take_data(self, header: BatchHeader) -> bool:
        """Report the next batch, which has data. Returns whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._met.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def take_control(self, header: BatchHeader, batch: BytesLike) -> bool:
        """Report the next batch, a control batch. Returns whether it may be discarded. Raises `MalformedMessage`."""
        self._begin_up_to(header.last_offset)
        record = next(iter(records_of(batch, 0, header)), None)
        if record is None:
            return True  # its record was removed in an earlier round
        kind = control_record_type(record.key)
        producer_id = header.producer_id
        if kind is ControlRecordType.ABORT:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is None or producer_id not in self._met:
                return True
            self._met.discard(producer_id)
            if self.on_kept is not None:
                self.on_kept(aborted)
            return False
        if kind is ControlRecordType.COMMIT:
            if producer_id not in self._committed:
                return True
            self._committed.discard(producer_id)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            aborted = self._coming.pop()
            self._aborted.setdefault(aborted.producer_id, aborted)
