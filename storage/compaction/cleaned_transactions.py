"""The transactions that are open at the cleaner's position: they tell which data is aborted, and which markers may be
discarded.

The caller reports every batch in the order of the log. A marker may be discarded (once its delete horizon has passed)
where the log has no batch of its transaction before it: an earlier round has removed them all. Until then the marker
stays. Without it a reader would take an aborted record for a committed one, or wait for the end of the transaction.

Where a log is in two tiers, the cleaner reads one part at a time. A marker stays, with its entry in the transaction
index, where batches of its transaction may be in a part that is not as clean: at or past `keeps_from`. It also stays
where the transaction was open at the first offset that is local: a follower that begins there has it open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import BatchHeader
from moldau.protocol.record_reader import records_of
from moldau.storage.log_config import INT64_MAX
from moldau.storage.segment.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open at the position of the cleaner."""

    __slots__ = ("_aborted", "_coming", "_committed", "_keeps_from", "_met", "on_kept")

    def __init__(
        self,
        aborted: Iterable[AbortedTransaction],
        *,
        keeps_from: int = INT64_MAX,
        open_before: frozenset[int] = frozenset(),
    ) -> None:
        """`aborted`: the aborted transactions with a batch or the marker among the batches that will be reported.
        `keeps_from`: the offset from which on no marker may be discarded. `open_before`: the producers with a
        transaction that was open before the first of these batches."""
        self._coming = sorted(set(aborted), key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        """The aborted transactions that have begun, by producer id."""
        self._keeps_from = keeps_from
        self._met: set[int] = set(open_before)
        """The producers of these transactions of which a data batch was reported."""
        self._committed: set[int] = set(open_before)
        """The producers of which a data batch was reported, in a transaction that is not aborted."""
        self.on_kept: Callable[[AbortedTransaction], None] | None = None
        """Called at the marker of each aborted transaction that still has batches, for the transaction index of the
        cleaned segment."""

    def take_data(self, header: BatchHeader) -> bool:
        """Report the next batch, which has data. Returns whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is not None and header.base_offset <= aborted.last_offset:
            self._met.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def take_control(self, header: BatchHeader, batch: BytesLike) -> bool:
        """Report the next batch, a control batch. Returns whether it may be discarded. Raises `MalformedMessage`."""
        self._begin_up_to(header.last_offset)
        record = next(iter(records_of(batch, 0, header)), None)
        if record is None:
            return True  # An earlier round removed the marker's record.
        kind = control_record_type(record.key)
        producer_id = header.producer_id
        is_met, is_committed = producer_id in self._met, producer_id in self._committed
        is_kept = header.last_offset >= self._keeps_from
        if kind is ControlRecordType.ABORT:
            self._end(producer_id)
            aborted = self._aborted.pop(producer_id, None)
            if aborted is not None and (is_met or is_kept) and self.on_kept is not None:
                self.on_kept(aborted)
            return not (is_kept or (is_met and (aborted is not None or is_committed)))
        if kind is ControlRecordType.COMMIT:
            self._end(producer_id)
            return not (is_kept or is_committed)
        return False

    def _end(self, producer_id: int) -> None:
        self._met.discard(producer_id)
        self._committed.discard(producer_id)

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            aborted = self._coming.pop()
            known = self._aborted.get(aborted.producer_id)
            if known is None or known.last_offset < aborted.first_offset:
                self._aborted[aborted.producer_id] = aborted
