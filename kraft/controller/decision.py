"""The result of a decision of the controller: records to append, and the reply to send once they are committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple

SLICE_SIZE: Final = 24
"""How many partitions a decision about many looks at before other work has its turn: to decide on one, to append its
record and to replay it takes 30 to 60 µs.
"""


class Decision(NamedTuple):
    """Records and a reply.

    The records may be empty. They are appended as one batch, which is atomic.

    The reply is sent once these records and those of all earlier decisions are committed: it may report what earlier
    decisions changed.
    """

    records: Sequence[object]
    reply: object | None = None
    further: Iterable[Sequence[object]] = ()
    """The batches after the first one, some of them empty: between two of them the event loop does other work, and the
    controller makes no other decision.
    """
    kraft_version: int | None = None
    """The kraft.version to which the Raft machine raises the quorum before these records are appended; None leaves it
    unchanged.
    """

    @classmethod
    def in_slices(cls, looked_at: Iterable[object | None], reply: object | None = None) -> Decision:
        """A decision about many partitions: a record for each that is looked at, or None if the partition stays as it
        is. Every prefix of the records leaves consistent metadata.
        """
        return cls.of_batches(slices(looked_at), reply)

    @classmethod
    def of_batches(cls, batches: Iterator[Sequence[object]], reply: object | None = None) -> Decision:
        return cls(next(batches, ()), reply, batches)

    def batches(self) -> Iterator[Sequence[object]]:
        """The batches in which the records are appended; those without records are only a pause."""
        yield self.records
        yield from self.further


def slices(looked_at: Iterable[object | None]) -> Iterator[list[object]]:
    """The records of `SLICE_SIZE` partitions each."""
    left = iter(looked_at)
    while part := list(islice(left, SLICE_SIZE)):
        yield [record for record in part if record is not None]


class ApiError(NamedTuple):
    """The error code and message of a refused change, as the reply reports them."""

    error: ErrorCode
    message: str | None
