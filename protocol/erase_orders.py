"""Erase orders: control batches that only Moldau has, by which each replica of a partition erases the same records.

An erase order names runs of offsets before its own offset (decision 36). Its batch has no producer, one record, and a
type of control record that is above those of Kafka. Apache Kafka 4.3.1 parses such a type as UNKNOWN: its log, its
cleaner, its tools and all clients skip the batch.

DIVERGES: Apache Kafka has no such control record.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from struct import Struct
from typing import Final

from moldau.protocol.compiler import decode, encode
from moldau.protocol.control_records import CONTROL_KEY, CONTROL_KEY_VERSION
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    crc_is_valid,
    parse_header,
)
from moldau.protocol.record_builder import Record, append_record, assemble
from moldau.protocol.record_reader import records_of
from moldau.protocol.schema import Bytes, Int16, Int64, Uuid, message, struct

ERASE_ORDER_TYPE: Final = 100
"""The type in the key of the control record. Kafka's own types are 0 to 6."""
ERASE_ORDER_VERSION: Final = 0
RUNS_MAX: Final = 10_000
"""The most runs of offsets in one erase order. If there are more, a client sends several orders."""
PREDICATE_HASH_SIZE: Final = 32
RECEIPT_PAGES_MAX: Final = 20
"""The most pages of receipts of erase orders that one request may ask for."""
VERSION = Struct(">h")


class Run(NamedTuple):
    """Consecutive offsets whose records an erase order erases."""

    first: int
    last: int
    """The last offset, inclusive."""


@struct
class EraseRun:
    first_offset: Int64
    last_offset: Int64


@message(versions="0", flexible="0+")
class EraseOrder:
    """The value of an erase order's control record (type `ERASE_ORDER_TYPE`)."""

    version: Int16
    order_id: Uuid
    asked_ms: Int64
    """The wall-clock time (ms) of the leader when it appended the order."""
    principal: str
    """The principal that sent the order, as the leader authenticated it."""
    predicate_hash: Bytes
    """The SHA-256 hash of the predicate by which the client found the records. The predicate itself is not in the log,
    because it may be personal data."""
    runs: list[EraseRun]


def new_erase_order(order_id: bytes, predicate_hash: bytes, runs: Iterable[Run]) -> EraseOrder:
    """Make an erase order as a client sends it. The leader sets its time and its principal."""
    return EraseOrder(
        version=ERASE_ORDER_VERSION,
        order_id=order_id,
        asked_ms=-1,
        principal="",
        predicate_hash=predicate_hash,
        runs=[EraseRun(first_offset=first, last_offset=last) for first, last in runs],
    )


def runs_of(order: EraseOrder) -> tuple[Run, ...]:
    return tuple(Run(each.first_offset, each.last_offset) for each in order.runs)


def runs_within(order: EraseOrder, first_offset: int, end_offset: int) -> list[Run]:
    """The offsets in [first_offset, end_offset) that an order names, as runs that are sorted and disjoint."""
    begin = bisect_left(order.runs, first_offset, key=attrgetter("last_offset"))
    end = bisect_left(order.runs, end_offset, key=attrgetter("first_offset"))
    return [
        Run(max(each.first_offset, first_offset), min(each.last_offset, end_offset - 1))
        for each in order.runs[begin:end]
    ]


def packed_runs(runs: Iterable[Run]) -> bytes:
    """Pack runs of offsets into 16 bytes each, to send them to another process. An event loop pickles bytes much faster
    than tuples."""
    return _packed(offset for run in runs for offset in run)


def packed_runs_of(order: EraseOrder) -> bytes:
    """Return the runs of an erase order as `packed_runs` packs them."""
    return _packed(offset for each in order.runs for offset in (each.first_offset, each.last_offset))


def _packed(offsets: Iterable[int]) -> bytes:
    return array("q", offsets).tobytes()


def unpacked_runs(packed: bytes) -> list[Run]:
    """Unpack the bytes that `packed_runs` has returned into runs of offsets."""
    offsets = array("q", packed)
    return list(map(Run, offsets[::2], offsets[1::2]))


def receipt_setting(partition: int, order_id: str, page: int) -> str:
    """Return the config name under which a DescribeConfigs of the topic returns one page of the receipt of an erase
    order. `order_id` is in hex."""
    return f"moldau.erase.{partition}.{order_id}.{page}"


def erase_order_batch(order: EraseOrder, timestamp_ms: int) -> bytes:
    """Return the control batch of an erase order, with base offset 0."""
    record = Record(
        CONTROL_KEY.pack(CONTROL_KEY_VERSION, ERASE_ORDER_TYPE), encode(order, ERASE_ORDER_VERSION), timestamp_ms
    )
    body = bytearray()
    append_record(body, record, 0, 0)
    return assemble(
        (bytes(body),),
        0,
        NO_LEADER_EPOCH,
        CONTROL_BIT,
        0,
        timestamp_ms,
        timestamp_ms,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        1,
    )


def is_control_without_producer(header: BatchHeader) -> bool:
    """Whether a batch is a control batch without a producer, so that it may be an erase order. Markers of transactions
    have a producer."""
    return bool(header.attributes & CONTROL_BIT) and header.producer_id == NO_PRODUCER_ID


def read_erase_order(batch: BytesLike) -> EraseOrder | None:
    """Read the erase order in one whole batch. Returns None if the batch is not an erase order. Raises
    `MalformedMessage` if the order is damaged, or of a version that this release does not know."""
    header = parse_header(batch)
    if not is_control_without_producer(header) or header.attributes & CODEC_MASK or header.records_count != 1:
        return None
    record = next(iter(records_of(batch, 0, header)))
    if record.key is None or len(record.key) != CONTROL_KEY.size:
        return None
    if CONTROL_KEY.unpack(record.key) != (CONTROL_KEY_VERSION, ERASE_ORDER_TYPE):
        return None
    if record.value is None or len(record.value) < VERSION.size:
        raise MalformedMessage("an erase order has no value")
    (version,) = VERSION.unpack_from(record.value)
    if version != ERASE_ORDER_VERSION:
        raise MalformedMessage(f"an erase order of version {version}, this release knows {ERASE_ORDER_VERSION}")
    return decode(EraseOrder, record.value, version)


def read_sent_order(batch: BytesLike) -> EraseOrder | str:
    """Return the erase order in the batch that a client sent, or a sentence about what is wrong with the batch."""
    try:
        header = parse_header(batch)
        if header.size != len(batch) or not crc_is_valid(batch, 0, header):
            return "exactly one whole batch with a valid checksum is expected for an erase order"
        order = read_erase_order(batch)
    except MalformedMessage as malformed:
        return str(malformed)
    return "clients write no control records" if order is None else order


def problem_of_order(order: EraseOrder, end_offset: int) -> str | None:
    """Return a sentence about why an erase order is not valid for a log whose high watermark is `end_offset`; None if
    the order is valid."""
    runs = order.runs
    if not runs:
        return "an erase order names no offsets"
    if len(runs) > RUNS_MAX:
        return f"an erase order of {len(runs)} runs is above the limit of {RUNS_MAX}: send several orders"
    if len(order.predicate_hash) != PREDICATE_HASH_SIZE:
        return f"the hash of the predicate has {len(order.predicate_hash)} bytes instead of {PREDICATE_HASH_SIZE}"
    if runs[0].first_offset < 0 or any(each.first_offset > each.last_offset for each in runs):
        return "a run of offsets begins below 0, or ends before it begins"
    previous = -1
    for each in runs:
        if each.first_offset <= previous:
            return "the runs of offsets are not in ascending order, or overlap"
        previous = each.last_offset
    if previous >= end_offset:
        return f"offset {previous} is at or past the high watermark {end_offset}: nothing there is committed"
    return None
