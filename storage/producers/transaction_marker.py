"""Reading the one record of a control batch that ends a transaction."""

from __future__ import annotations

from struct import Struct
from typing import Final

from moldau.protocol.control_records import ControlRecordType, control_record_type, coordinator_epoch_of
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE
from moldau.protocol.record_reader import records_of
from moldau.storage.producers.producer_state import TransactionMarker

USUAL: Final = Struct(">i5shhchic")
"""The end of a marker as coordinators write it: the count of records, then the one record, in fields of fixed sizes.

A record without headers, the first of its batch in offset and time, with a key of 4 bytes and a value of 6.
"""
COUNT_POSITION: Final = HEADER_SIZE - 4
USUAL_SIZE: Final = COUNT_POSITION + USUAL.size
BEFORE_KEY: Final = b"\x20\0\0\0\x08"
"""The size of the record, no attributes, both deltas, the size of the key."""
BEFORE_VALUE: Final = b"\x0c"
"""The size of the value."""
NO_HEADERS: Final = b"\0"
ABORT: Final = int(ControlRecordType.ABORT)
COMMIT: Final = int(ControlRecordType.COMMIT)


def read_transaction_marker(batch: BytesLike) -> TransactionMarker | None:
    """The transaction marker in a control batch; None where it is another kind of control batch.

    Raises `MalformedMessage` where the record cannot be read.
    """
    if len(batch) == USUAL_SIZE and not batch[ATTRIBUTES_POSITION + 1] & CODEC_MASK:
        count, before_key, key_version, kind, before_value, version, epoch, after = USUAL.unpack_from(
            batch, COUNT_POSITION
        )
        is_usual = (count, before_key, before_value, after) == (1, BEFORE_KEY, BEFORE_VALUE, NO_HEADERS)
        if is_usual and key_version >= 0 and version >= 0 and kind in (ABORT, COMMIT):
            return TransactionMarker(kind == COMMIT, epoch)
    for record in records_of(batch):
        kind = control_record_type(record.key)
        if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return TransactionMarker(kind is ControlRecordType.COMMIT, coordinator_epoch_of(record.value))
        return None
    return None
