"""The result of a decision of the controller: records to append, and the reply to send when they are committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple

PARTITIONS_PER_SLICE: Final = 24
"""The number of partitions that a decision examines before the event loop does other work. Each takes 30 to 60 µs: the
decision, the append and the replay of its record.
"""


class Decision(NamedTuple):
    """The records to append and the reply to send.

    The records are appended as one atomic batch; there may be none. The reply is sent when these records and those of
    all earlier decisions are committed, because it may report what earlier decisions changed.
    """

    records: Sequence[object]
    reply: object | None = None
    further_batches: Iterable[Sequence[object]] = ()
    """The batches of records to append after `records`; some may be empty. Between two batches the event loop does
    other work, but the controller makes no other decision."""
    kraft_version: int | None = None
    """The kraft.version to which the quorum is upgraded before these records are appended; None leaves the version
    unchanged."""

    @classmethod
    def in_slices(cls, looked_at: Iterable[object | None], reply: object | None = None) -> Decision:
        """Make a decision about many partitions. The records of each slice of partitions are appended in a batch of
        their own. `looked_at` has one element for each examined partition: its record, or None if the partition does
        not change. The metadata must be consistent after any number of the records.
        """
        return cls.of_batches(record_slices(looked_at), reply)

    @classmethod
    def of_batches(cls, batches: Iterator[Sequence[object]], reply: object | None = None) -> Decision:
        return cls(next(batches, ()), reply, batches)

    def batches(self) -> Iterator[Sequence[object]]:
        """All batches of the decision in the order in which they are appended. A batch without records is only a
        pause."""
        yield self.records
        yield from self.further_batches


def record_slices(looked_at: Iterable[object | None]) -> Iterator[list[object]]:
    """Yield the records of each slice of `PARTITIONS_PER_SLICE` elements, without the Nones."""
    left = iter(looked_at)
    while part := list(islice(left, PARTITIONS_PER_SLICE)):
        yield [record for record in part if record is not None]


class ApiError(NamedTuple):
    """The error code and message of a refused change, as the reply has them."""

    error: ErrorCode
    message: str | None
