"""Reading the one record of a control batch that ends a transaction."""

from __future__ import annotations

from protocol.control_records import ControlRecordType, control_record_type, coordinator_epoch_of
from protocol.primitives import BytesLike
from protocol.record_reader import records_of
from storage.producers.producer_state import TransactionMarker


def read_transaction_marker(batch: BytesLike) -> TransactionMarker | None:
    """The transaction marker in a control batch; None where it is another kind of control batch.

    Raises `MalformedMessage` where the record cannot be read.
    """
    for record in records_of(batch):
        kind = control_record_type(record.key)
        if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return TransactionMarker(kind is ControlRecordType.COMMIT, coordinator_epoch_of(record.value))
        return None
    return None
