"""Iteration over the batches of a buffer. It is not part of `record_batch.py`, because mypyc cannot compile an iterator
of tuples."""

from __future__ import annotations

from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import LOG_OVERHEAD, BatchHeader, whole_batch


class BatchIterator:
    """Iterates over the whole batches of a buffer, and yields (position, header). A batch that is cut short ends the
    iteration without an error.

    After the iteration, `position` is the end of the last whole batch, and `partial_size` is the number of bytes after
    it. A fetch response or a torn log may end with such bytes.
    """

    __slots__ = ("buffer", "end", "position")

    def __init__(self, buffer: BytesLike, position: int, end: int) -> None:
        self.buffer = buffer
        self.position = position
        self.end = end

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> tuple[int, BatchHeader]:
        position = self.position
        header = whole_batch(self.buffer, position, self.end)
        if header is None:
            raise StopIteration
        self.position = position + header.batch_length + LOG_OVERHEAD
        return position, header

    @property
    def partial_size(self) -> int:
        return self.end - self.position


def iterate_batches(buffer: BytesLike, position: int = 0, end: int | None = None) -> BatchIterator:
    """Iterate over the batches of `buffer[position:end]`. The iterator raises `MalformedMessage` at a position at which
    no batch can begin."""
    return BatchIterator(buffer, position, len(buffer) if end is None else end)
