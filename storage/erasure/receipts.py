"""The receipts of a log: what each erase order removed from which segment, in `erase-receipts.json` beside the log.

The entry of a segment is written before the rewritten segment is swapped in. After a crash in between, the checksum of
the segment's file is the one before the erasure, the segment is rewritten again, and its entry replaced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from moldau.protocol.erase_orders import EraseOrder, Run
from moldau.storage.erasure.erasing import SegmentErased
from moldau.storage.files.port import FileSystem, write_atomically

ERASE_RECEIPTS: Final = "erase-receipts.json"
ORDERS_KEPT: Final = 100
"""The receipts of the last orders that were carried out are kept."""


@dataclass(slots=True)
class SegmentReceipt:
    """What was erased from one segment, by its base offset."""

    base_offset: int
    erased: list[list[int]]
    """[first, last] of each run of erased offsets."""
    records_erased: int
    crc_before: str
    """CRC-32C of the .log file, in hex."""
    crc_after: str
    size_before: int
    size_after: int


@dataclass(slots=True)
class OrderReceipt:
    """What one order removed from this replica."""

    order_id: str
    offset: int
    """The offset of the order."""
    asked_ms: int
    principal: str
    predicate_sha256: str
    done_ms: int | None = None
    """None: some of it is not erased yet."""
    segments: list[SegmentReceipt] = field(default_factory=list)


class Receipts:
    """The receipts of one log, in the order in which the orders were begun."""

    __slots__ = ("_directory", "_fs", "orders")

    def __init__(self, fs: FileSystem, directory: str, orders: Sequence[OrderReceipt] = ()) -> None:
        self._fs = fs
        self._directory = directory
        self.orders = {each.order_id: each for each in orders}

    @classmethod
    def load(cls, fs: FileSystem, directory: str) -> Receipts:
        """Read the file; none if it is missing or damaged: an order is then carried out again, and finds nothing.

        Blocks for the disk. Raises OSError.
        """
        path = f"{directory}/{ERASE_RECEIPTS}"
        if not fs.exists(path):
            return cls(fs, directory)
        try:
            stated = json.loads(fs.read(path))["orders"]
            orders = [
                OrderReceipt(**{**each, "segments": [SegmentReceipt(**segment) for segment in each["segments"]]})
                for each in stated
            ]
        except (ValueError, TypeError, KeyError):
            return cls(fs, directory)
        return cls(fs, directory, orders)

    def begin(self, order: EraseOrder, offset: int) -> OrderReceipt:
        """The receipt of an order, which may have been begun before a crash."""
        order_id = order.order_id.hex()
        known = self.orders.get(order_id)
        if known is None:
            known = self.orders[order_id] = OrderReceipt(
                order_id, offset, order.asked_ms, order.principal, order.predicate_hash.hex()
            )
        return known

    def note_segment(self, receipt: OrderReceipt, erased: SegmentErased) -> None:
        """Enter a rewritten segment, before it is swapped in."""
        (replaced,) = erased.cleaned.replaced
        entry = SegmentReceipt(
            replaced.base_offset,
            [list(run) for run in erased.erased],
            erased.records_erased,
            f"{erased.crc_before:08x}",
            f"{erased.crc_after:08x}",
            replaced.size,
            erased.cleaned.size,
        )
        receipt.segments = [each for each in receipt.segments if each.base_offset != entry.base_offset]
        receipt.segments.append(entry)

    def note_done(self, receipt: OrderReceipt, now_ms: int) -> None:
        receipt.done_ms = now_ms
        done = [each.order_id for each in self.orders.values() if each.done_ms is not None]
        for order_id in done[: max(0, len(done) - ORDERS_KEPT)]:
            del self.orders[order_id]

    def encode(self) -> bytes:
        return json.dumps({"version": 1, "orders": [asdict(each) for each in self.orders.values()]}).encode()

    def write(self) -> None:
        """Write the file, durably. Blocks for the disk. Raises OSError."""
        write_atomically(self._fs, f"{self._directory}/{ERASE_RECEIPTS}", self.encode())


def erased_offsets(receipt: OrderReceipt) -> list[Run]:
    """The offsets that an order has erased here."""
    return [Run(first, last) for each in receipt.segments for first, last in each.erased]
