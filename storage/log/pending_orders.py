"""The erase orders of a log that it has not carried out: how they are found, and what is hidden meanwhile.

    appended, or fetched from the leader ──▶ pending ──▶ below the high watermark: carried out ──▶ forgotten
                                                 └──▶ truncated ──▶ forgotten

`erase-order-checkpoint` has the offsets of the pending orders. It follows from the log: each flush writes it before
the recovery point moves past an order, and a start reads the headers from the recovery point on. An offset at which
the log has no order is dropped, and a damaged file is made again from the headers of the whole log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
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
from moldau.storage.segment.segment import Segment

ERASE_ORDERS: Final = "erase-order-checkpoint"
_base_offset = attrgetter("base_offset")


class PendingOrders:
    """The offsets of the pending orders of one log, ascending."""

    __slots__ = ("_directory", "_is_written", "hidden", "offsets")

    def __init__(self, directory: str, offsets: Iterable[int] = (), *, is_written: bool = True) -> None:
        self._directory = directory
        self._is_written = is_written
        self.offsets = list(offsets)
        self.hidden: tuple[Run, ...] = ()
        """The offsets that consumers must not read here until they are erased. A replica that starts or is elected
        with a pending order hides what that order names: others may have erased it long ago."""

    @property
    def path(self) -> str:
        return f"{self._directory}/{ERASE_ORDERS}"

    def encode(self) -> bytes:
        """The content of the file."""
        return format_checkpoint([str(offset) for offset in self.offsets])

    @property
    def is_dirty(self) -> bool:
        return not self._is_written

    def note_written(self) -> None:
        self._is_written = True

    def note_not_written(self) -> None:
        self._is_written = False

    def add(self, offset: int) -> None:
        """An order was appended."""
        self.offsets.append(offset)
        self._is_written = False

    def carried_out(self, offset: int) -> None:
        """An order was carried out, durably."""
        self._keep([each for each in self.offsets if each != offset])

    def truncate_from_end(self, end_offset: int) -> None:
        self._keep([each for each in self.offsets if each < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the orders before the first segment: what they name is deleted with them."""
        self._keep([each for each in self.offsets if each >= start_offset])

    def _keep(self, offsets: list[int]) -> None:
        if len(offsets) < len(self.offsets):
            self.offsets = offsets
            self._is_written = False
            if not offsets:
                self.hidden = ()

    def hide(self, segments: Sequence[Segment]) -> None:
        """Hide what the pending orders name. Raises OSError and `MalformedMessage`."""
        orders = [order_at(segments, offset) for offset in self.offsets]
        self.hidden = tuple(sorted(run for order in orders if order is not None for run in runs_of(order)))

    def show(self, first_offset: int, end_offset: int) -> None:
        """The runs in these offsets are erased; the part of a run outside of them stays hidden."""
        left: list[Run] = []
        for run in self.hidden:
            if run.first < first_offset:
                left.append(Run(run.first, min(run.last, first_offset - 1)))
            if run.last >= end_offset:
                left.append(Run(max(run.first, end_offset), run.last))
        self.hidden = tuple(left)

    def hides(self, first_offset: int, end_offset: int) -> bool:
        """Whether a hidden offset is among these."""
        return any(run.first < end_offset and run.last >= first_offset for run in self.hidden)


def order_at(segments: Sequence[Segment], offset: int) -> EraseOrder | None:
    """The order whose batch begins at an offset; None if there is none. Raises OSError and `MalformedMessage`."""
    slot = bisect_right(segments, offset, key=_base_offset) - 1
    if slot < 0:
        return None
    place = segments[slot].find(offset)
    if place is None or place.base_offset != offset:
        return None
    return _order_in(segments[slot], place.position, place.size)


def _order_in(segment: Segment, position: int, size: int) -> EraseOrder | None:
    """The order in a batch; None also if this release cannot read it."""
    try:
        return read_erase_order(segment.file().pread(size, position))
    except MalformedMessage:
        return None


def load_pending_orders(
    fs: FileSystem, directory: str, segments: Sequence[Segment], trusted_end_offset: int, end_offset: int
) -> PendingOrders:
    """The pending orders of a log that is opened: those of the file before `trusted_end_offset`, and those of the
    batches from there to the end of the log. What they name is hidden. Raises OSError and `MalformedMessage`.
    """
    path = f"{directory}/{ERASE_ORDERS}"
    stated: list[int] = []
    if fs.exists(path):
        try:
            stated = sorted({int(line) for line in parse_checkpoint(fs.read(path), path)})
        except (CorruptCheckpoint, ValueError):
            trusted_end_offset = 0
    found = [each for each in stated if each < min(trusted_end_offset, end_offset) and order_at(segments, each)]
    if trusted_end_offset < end_offset:
        found += _offsets_of_orders(segments, trusted_end_offset, end_offset)
    orders = PendingOrders(directory, found, is_written=found == stated)
    orders.hide(segments)
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
