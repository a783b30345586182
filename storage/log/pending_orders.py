"""The pending erase orders of a log, which it has not carried out yet: how they are found, and what is hidden
meanwhile.

    appended, or fetched from the leader ──▶ pending ──▶ below the high watermark: carried out here ──▶ forgotten
                                               └──▶ truncated ──▶ forgotten            │ a tiered log   ▲
                                                                                      └──▶ tiered ─────┘

A *tiered* order is carried out in the local files, and waits until no remote segment has a record that it names and the
segment with the order itself is copied. The leader does this work, but every replica keeps the order, because each may
become leader.

`erase-order-checkpoint` has the offsets of the pending orders. Each flush writes it before the recovery point moves
past an order. At a start the orders past the recovery point are found in the batch headers, and an offset at which the
log has no order is dropped. If the file is damaged, the headers of the whole log are read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final

from moldau.protocol.erase_orders import (
    EraseOrder,
    Run,
    is_control_without_producer,
    read_erase_order,
    runs_of,
)
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint, format_checkpoint, parse_checkpoint
from moldau.storage.files.port import FileSystem
from moldau.storage.log_config import INT64_MAX
from moldau.storage.segment.segment import Segment

ERASE_ORDER_CHECKPOINT: Final = "erase-order-checkpoint"
_base_offset = attrgetter("base_offset")
_first = attrgetter("first")
_last = attrgetter("last")


class PendingEraseOrders:
    """The erase orders that a log has not carried out yet, by the offsets of their batches."""

    __slots__ = ("_directory", "_is_written", "hidden_runs", "offsets", "searched", "tiered")

    def __init__(self, directory: str, offsets: Iterable[int] = (), *, is_written: bool = True) -> None:
        self._directory = directory
        self._is_written = is_written
        self.offsets = list(offsets)
        self.tiered: list[int] = []
        """The offsets (ascending) of the erase orders that are carried out in the local files, and perhaps not yet in
        remote storage. A start of the broker counts them as pending again."""
        self.searched: set[int] = set()
        """The orders of `tiered` for which this replica knows that remote storage has none of the records that they
        name."""
        self.hidden_runs: tuple[Run, ...] = ()
        """The offsets that consumers must not read before they are erased. A replica that starts or is elected with a
        pending order hides its records, because other replicas may have erased them.
        """

    @property
    def path(self) -> str:
        return f"{self._directory}/{ERASE_ORDER_CHECKPOINT}"

    def encode(self) -> bytes:
        """The content of the erase-order-checkpoint file."""
        return format_checkpoint([str(offset) for offset in sorted(self.offsets + self.tiered)])

    @property
    def copy_end_offset(self) -> int:
        """The offset (exclusive) up to which segments may be copied to remote storage.

        While an order is pending, nothing is copied, because local records may still be erased. The batch of a tiered
        order is not copied before the order is carried out in remote storage, so a replica that begins after the copied
        part has the order.
        """
        if self.offsets:
            return 0
        return min((each for each in self.tiered if each not in self.searched), default=INT64_MAX)

    @property
    def kept_offset(self) -> int:
        """The offset of the first order that is still needed: local retention of a tiered log keeps the segments from
        there on. `INT64_MAX` if no order is needed.
        """
        return min(self.offsets[:1] + self.tiered[:1], default=INT64_MAX)

    @property
    def erased_end_offset(self) -> int:
        """The erased end offset (`storage/tiered/metadata/lineage.py`) for a segment that is copied to remote storage
        now."""
        return self.tiered[-1] + 1 if self.tiered else 0

    @property
    def is_dirty(self) -> bool:
        return not self._is_written

    def note_written(self) -> None:
        self._is_written = True

    def note_not_written(self) -> None:
        self._is_written = False

    def add(self, offset: int) -> None:
        """Add an erase order whose batch was appended at `offset`. It is pending from now on."""
        self.offsets.append(offset)
        self._is_written = False

    def are_pending(self, offsets: Iterable[int]) -> bool:
        """Whether all the erase orders at these offsets are pending."""
        return all(each in self.offsets for each in offsets)

    def remove_order(self, offset: int) -> None:
        """Forget the erase order at `offset`, which was carried out durably."""
        self._keep(lambda each: each != offset)

    def note_carried_out_locally(self, offset: int) -> None:
        """Record that an order was carried out durably in the local files. Remote storage may still have its
        records.
        """
        self._keep(lambda each: each != offset)
        self.tiered = sorted({*self.tiered, offset})

    def truncate_from_end(self, end_offset: int) -> None:
        self._keep(lambda each: each < end_offset)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the orders before `start_offset`, the start of the first segment: the records that they name are
        deleted with them."""
        self._keep(lambda each: each >= start_offset)

    def _keep(self, stays: Callable[[int], bool]) -> None:
        count = len(self.offsets) + len(self.tiered)
        self.offsets = list(filter(stays, self.offsets))
        self.tiered = list(filter(stays, self.tiered))
        self.searched.intersection_update(self.tiered)
        if len(self.offsets) + len(self.tiered) < count:
            self._is_written = False
            if not self.offsets:
                self.hidden_runs = ()

    def hide_records(self, segments: Sequence[Segment]) -> None:
        """Hide from consumers the records that the pending orders name. Raises OSError and `MalformedMessage`."""
        orders = [erase_order_at(segments, offset) for offset in self.offsets]
        self.hidden_runs = tuple(sorted(run for order in orders if order is not None for run in runs_of(order)))

    def show_runs(self, runs: Sequence[Run]) -> None:
        """Stop hiding the offsets of `runs`, because they are erased. The runs are sorted and disjoint."""
        left: list[Run] = []
        for first, last in self.hidden_runs:
            for shown in runs[bisect_left(runs, first, key=_last) : bisect_right(runs, last, key=_first)]:
                if first < shown.first:
                    left.append(Run(first, shown.first - 1))
                first = shown.last + 1
            if first <= last:
                left.append(Run(first, last))
        self.hidden_runs = tuple(left)

    def hides_offset_in(self, first_offset: int, end_offset: int) -> bool:
        """Whether a pending erase order hides an offset in [first_offset, end_offset)."""
        return any(run.first < end_offset and run.last >= first_offset for run in self.hidden_runs)


def erase_order_at(segments: Sequence[Segment], offset: int) -> EraseOrder | None:
    """The erase order whose batch begins at `offset`; None if no such batch is there. Raises OSError and
    `MalformedMessage`."""
    slot = bisect_right(segments, offset, key=_base_offset) - 1
    if slot < 0:
        return None
    place = segments[slot].find_batch(offset)
    if place is None or place.base_offset != offset:
        return None
    return _order_in(segments[slot], place.position, place.size)


def _order_in(segment: Segment, position: int, size: int) -> EraseOrder | None:
    """Read the erase order in the batch at a position. Returns None if the batch has none, or one that this release
    cannot read."""
    try:
        return read_erase_order(segment.file().pread(size, position))
    except MalformedMessage:
        return None


def load_pending_orders(
    fs: FileSystem, directory: str, segments: Sequence[Segment], trusted_end_offset: int, end_offset: int
) -> PendingEraseOrders:
    """Load the pending erase orders of a log that is opened: those before `trusted_end_offset` from the checkpoint, and
    those from there to `end_offset` from the batches. The records that they name are hidden. Raises OSError and
    `MalformedMessage`."""
    path = f"{directory}/{ERASE_ORDER_CHECKPOINT}"
    stated: list[int] = []
    if fs.exists(path):
        try:
            stated = sorted({int(line) for line in parse_checkpoint(fs.read(path), path)})
        except (CorruptCheckpoint, ValueError):
            trusted_end_offset = 0
    found = [each for each in stated if each < min(trusted_end_offset, end_offset) and erase_order_at(segments, each)]
    if trusted_end_offset < end_offset:
        found += _offsets_of_orders(segments, trusted_end_offset, end_offset)
    orders = PendingEraseOrders(directory, found, is_written=found == stated)
    orders.hide_records(segments)
    return orders


def _offsets_of_orders(segments: Sequence[Segment], first_offset: int, end_offset: int) -> list[int]:
    found = []
    for segment in segments[max(0, bisect_right(segments, first_offset, key=_base_offset) - 1) :]:
        for position, header in segment.headers(segment.start_position(first_offset)):
            if header.base_offset >= end_offset:
                break
            if header.base_offset < first_offset or not is_control_without_producer(header):
                continue
            if _order_in(segment, position, header.size) is not None:
                found.append(header.base_offset)
    return found
