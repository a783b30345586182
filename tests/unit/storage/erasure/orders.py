"""Erase orders in a log, and a driver that carries them out as a broker does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moldau.protocol.erase_orders import Run, erase_order_batch, new_erase_order, packed_runs_of, runs_of, runs_within
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.erasure.erasing import SegmentErased, erase_request, erase_segments
from moldau.storage.erasure.receipts import OrderReceipt, read_or_new_receipt, write_receipt, write_segment_receipts
from moldau.storage.files.port import FileSystem
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
from moldau.storage.log.pending_orders import erase_order_at
from tests.unit.storage.compaction.histories import NOW_MS, checkpoint

PREDICATE_HASH = b"h" * 32


def runs_from(offsets: Iterable[int]) -> list[Run]:
    """The runs of these offsets."""
    runs: list[Run] = []
    for offset in sorted(set(offsets)):
        if runs and runs[-1].last == offset - 1:
            runs[-1] = Run(runs[-1].first, offset)
        else:
            runs.append(Run(offset, offset))
    return runs


def send_order(log: Log, runs: Iterable[Run], number: int = 1, *, now_ms: int = NOW_MS) -> int:
    """Append an order; its offset."""
    batch = erase_order_batch(new_erase_order(number.to_bytes(16, "big"), PREDICATE_HASH, runs), now_ms)
    result = log.append_as_leader(batch, 0, now_ms, origin=AppendOrigin.COORDINATOR)
    assert result.error == 0, result
    return result.base_offset


def carry_out(
    fs: FileSystem, log: Log, offset: int, owner: LogDirectory | None = None, *, io_buffer_size: int = 500
) -> OrderReceipt:
    """Carry out the order at an offset."""
    (receipt,) = carry_out_all(fs, log, [offset], owner, io_buffer_size=io_buffer_size)
    return receipt


def carry_out_all(
    fs: FileSystem,
    log: Log,
    offsets: Sequence[int],
    owner: LogDirectory | None = None,
    *,
    io_buffer_size: int = 500,
) -> list[OrderReceipt]:
    """Carry out the orders at some offsets in one pass: roll, flush, rewrite, enter the receipts, swap, sync, forget
    the orders."""
    orders = [order for offset in offsets if (order := erase_order_at(log.segments, offset)) is not None]
    assert len(orders) == len(offsets)
    runs = [runs_of(order) for order in orders]
    first, last = min(each[0].first for each in runs), max(each[-1].last for each in runs)
    if last >= log.active.base_offset:
        log.roll(NOW_MS)
    log.flush(NOW_MS)
    if owner is not None:
        checkpoint(owner)
    receipts = [read_or_new_receipt(fs, log.directory, *each) for each in zip(orders, offsets, strict=True)]
    to_remove: list[str] = []
    for event in erase_segments(fs, erase_request(log, list(map(packed_runs_of, orders)), first, last, io_buffer_size)):
        if isinstance(event, SegmentErased):
            write_segment_receipts(fs, log.directory, receipts, event)
            removed = log.swap_cleaned(event.cleaned, NOW_MS)
            assert removed is not None
            for order in orders:
                erased = runs_within(order, event.cleaned.base_offset, event.cleaned.replaced_end_offset)
                log.erase_orders.show_runs(erased)
            to_remove += removed
    fs.sync_directory(log.directory)
    for path in to_remove:
        fs.unlink(path)
    for offset, receipt in zip(offsets, receipts, strict=True):
        receipt.done_ms = NOW_MS
        write_receipt(fs, log.directory, receipt)
        log.erase_orders.remove_order(offset)
    log.directory_is_dirty = True
    log.flush(NOW_MS)
    return receipts
