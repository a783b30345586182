"""The receipts of a log: what each erase order removed from which segment, in `erase-receipt-ID.json` beside the log.

The entry of a segment is written before the rewritten segment is swapped in. After a crash between the two, the
segment's file still has the checksum from before the erasure. The segment is then rewritten again, and its entry is
replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from moldau.protocol.erase_orders import EraseOrder, unpacked_runs
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.erasure.erasing import ErasedRecords, SegmentErased
from moldau.storage.files.log_paths import receipt_path
from moldau.storage.files.port import FileSystem, write_atomically
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment


@dataclass(slots=True)
class SegmentReceipt:
    """What an erase order removed from one segment, which `base_offset` names."""

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
class ObjectReceipt:
    """What an erase order removed from one remote segment, which another remote segment has replaced."""

    segment_id: str
    replaced_by: str
    base_offset: int
    last_offset: int
    """The last offset of the remote segment (inclusive)."""
    erased: list[list[int]]
    """[first, last] of each run of erased offsets."""
    records_erased: int
    crc_before: str
    """CRC-32C of the .log object, in hex."""
    crc_after: str
    size_before: int
    size_after: int


@dataclass(slots=True)
class TierReceipt:
    """What this replica erased from remote storage for an erase order, while it was the leader."""

    done_ms: int | None = None
    """The time (ms) at which the erasure in remote storage was complete: no remote segment has a record of the order
    any more, and the replaced objects are deleted. None before, and if this replica does not know it, because only a
    leader does."""
    objects: list[ObjectReceipt] = field(default_factory=list)
    pinned: list[str] = field(default_factory=list)
    """The ids of the replaced segments whose objects are not deleted yet, because the pin of a reader holds them."""


@dataclass(slots=True)
class OrderReceipt:
    """What one erase order removed from this replica."""

    order_id: str
    offset: int
    """The offset of the record that is the erase order."""
    asked_ms: int
    principal: str
    predicate_sha256: str
    done_ms: int | None = None
    """The time (ms) at which the last record was erased from the log's own files; None if the erasure is
    not complete."""
    segments: list[SegmentReceipt] = field(default_factory=list)
    tier: TierReceipt | None = None
    """The receipt for remote storage; None if the log is not tiered, or the order is not carried out in the local files
    yet."""

    @property
    def records_erased(self) -> int:
        """The number of records that this replica erased from its own files."""
        return sum(each.records_erased for each in self.segments)


def read_or_new_receipt(fs: FileSystem, directory: str, order: EraseOrder, offset: int) -> OrderReceipt:
    """Read the receipt of an erase order, which may be from before a crash, or make a new one.

    A damaged file is replaced: the order is then carried out again, and finds nothing. Blocks for the disk. Raises
    OSError.
    """
    path = receipt_path(directory, order.order_id.hex())
    if fs.exists(path):
        try:
            stated = json.loads(fs.read(path))
            tier = stated.get("tier")
            if tier is not None:
                tier = TierReceipt(**{**tier, "objects": [ObjectReceipt(**each) for each in tier["objects"]]})
            segments = [SegmentReceipt(**each) for each in stated["segments"]]
            return OrderReceipt(**{**stated, "segments": segments, "tier": tier})
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
    return OrderReceipt(order.order_id.hex(), offset, order.asked_ms, order.principal, order.predicate_hash.hex())


def add_segment_to_receipt(receipt: OrderReceipt, segment: SegmentErased, erased: ErasedRecords) -> None:
    """Add a rewritten segment to the receipt of an order that erased `erased` from it. The receipt must be written
    before the segment is swapped in.
    """
    (replaced,) = segment.cleaned.replaced
    entry = SegmentReceipt(
        replaced.base_offset,
        _stated(erased),
        erased.records_count,
        f"{segment.crc_before:08x}",
        f"{segment.crc_after:08x}",
        replaced.size,
        segment.cleaned.size,
    )
    receipt.segments = [each for each in receipt.segments if each.base_offset != entry.base_offset]
    receipt.segments.append(entry)


def _stated(erased: ErasedRecords) -> list[list[int]]:
    return [list(run) for run in unpacked_runs(erased.runs)]


def write_segment_receipts(
    fs: FileSystem, directory: str, receipts: Iterable[OrderReceipt], segment: SegmentErased
) -> None:
    """Add a rewritten segment to the receipts of the orders that erased records of it, and write them durably.
    `receipts` has the order of the request. Blocks for the disk. Raises OSError.
    """
    for receipt, erased in zip(receipts, segment.erased, strict=True):
        if erased.records_count:
            add_segment_to_receipt(receipt, segment, erased)
            write_receipt(fs, directory, receipt)


def add_object_to_receipt(
    tier: TierReceipt, segment: RemoteSegment, replaced_by: bytes, erased: SegmentErased, of_order: ErasedRecords
) -> None:
    """Enter a rewritten remote segment in the receipt of an erase order.

    `replaced_by`: the id of the new remote segment. `of_order`: the records of the segment that the order has erased.
    The caller writes the receipt before the new remote segment is read.
    """
    entry = ObjectReceipt(
        uuid_text(segment.segment_id),
        uuid_text(replaced_by),
        segment.start_offset,
        segment.last_offset,
        _stated(of_order),
        of_order.records_count,
        f"{erased.crc_before:08x}",
        f"{erased.crc_after:08x}",
        segment.size,
        erased.cleaned.size,
    )
    tier.objects = [each for each in tier.objects if each.segment_id != entry.segment_id]
    tier.objects.append(entry)


def write_receipt(fs: FileSystem, directory: str, receipt: OrderReceipt) -> None:
    """Write the receipt file durably. Blocks for the disk. Raises OSError."""
    write_atomically(fs, receipt_path(directory, receipt.order_id), json.dumps(receipt, default=_fields).encode())


def _fields(part: object) -> dict[str, object]:
    """The fields of a dataclass by name. `asdict` would copy each run of offsets, which takes much longer."""
    return {each.name: getattr(part, each.name) for each in fields(part)}  # type: ignore[arg-type]
