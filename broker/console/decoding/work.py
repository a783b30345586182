"""The program of the console's worker process: it answers the questions of the node. A question is a function of the
state that the process keeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from pickle import PickleBuffer
from typing import Final, NamedTuple, TypeAlias

from moldau.broker.config.values import linear_matcher
from moldau.broker.console.decoding.counting import RecordCount, count_batches
from moldau.broker.console.decoding.schemas import Schemas
from moldau.broker.console.decoding.selection import FetchedPiece, RecordFilter, SelectedRecords, select_records
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.messages.fetch import AbortedTransaction
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.storage.files.port import FileSystem


class WorkerState(NamedTuple):
    """The state that the worker process keeps between questions."""

    fs: FileSystem
    schemas: Schemas | None
    """The schemas of the registry; None if no registry is set."""


SEARCH_EFFORT: Final = 1 << 21
"""The effort (see `selection.select_records`) after which a search pauses, so that other questions are answered: 0.1 to
0.3 s.
"""
Question: TypeAlias = Callable[[WorkerState], object]
"""A function of the state that can be pickled: a `functools.partial` of a function in this module."""


def answers(fs: FileSystem, registry: str | None) -> Generator[object, Question, None]:
    """A generator that answers the questions sent to it. It first yields None, before any question. `registry` is the
    URL of a schema registry, or None.
    """
    schemas = None if registry is None else Schemas(registry, lambda: round(time.monotonic() * 1000))
    state = WorkerState(fs, schemas)
    answer: object = None
    while True:
        question = yield answer
        answer = question(state)


def selected(state: WorkerState, piece: FetchedPiece, wanted: RecordFilter) -> SelectedRecords:
    """Select the records of a piece that match `wanted`."""
    return select_records(piece, wanted, state.schemas)


class FilePlace(NamedTuple):
    """A place of batches in the .log file of a segment. The last batch may be cut short."""

    path: str
    inode: int
    """The inode of the file. Another file may have the path by the time of the read."""
    position: int
    size: int


class SearchResult(NamedTuple):
    """The result of searching a piece."""

    selected: SelectedRecords
    begins_ms: int
    """The largest timestamp of the piece's first batch; -1 if it has no batch."""


def searched(
    state: WorkerState, piece: FetchedPiece, wanted: RecordFilter, place: FilePlace | None
) -> SearchResult | None:
    """Search a piece for records that match `wanted`. The search ends after an effort of about `SEARCH_EFFORT`. If
    `place` is given, the batches are read from that place in a file; the result is None if they are not there any more.
    """
    try:
        data = bytes(piece.records) if place is None else _bytes_at(state.fs, place)
        if data is None:
            return None
        first = next(iterate_batches(data), None)
        found = select_records(piece._replace(records=data), wanted, state.schemas, SEARCH_EFFORT)
    except MalformedMessage:
        return None
    return SearchResult(found, -1 if first is None else first[1].max_timestamp)


def _bytes_at(fs: FileSystem, place: FilePlace) -> bytes | None:
    try:
        file = fs.open(place.path, read_only=True)
        try:
            if fs.stamp(place.path).inode == place.inode:
                return file.pread(place.size, place.position)
        finally:
            file.close()
    except FileNotFoundError:
        pass
    return None


def counted(
    state: WorkerState, so_far: RecordCount, records: BytesLike | PickleBuffer, aborted: Iterable[AbortedTransaction]
) -> tuple[RecordCount, bool]:
    """Count the records in fetched batches. Returns the new count, and whether all batches could be read."""
    try:
        count_batches(so_far, bytes(records), aborted)
    except MalformedMessage:
        return so_far, False
    return so_far, True


def compiles(state: WorkerState, pattern: str) -> bool:
    """Whether a pattern is an expression of RE2."""
    return linear_matcher(pattern) is not None


def assignments(state: WorkerState, encoded: Iterable[bytes]) -> list[dict[str, list[int]] | None]:
    """Decode the assignments of members: the partitions by topic, or None for an assignment that cannot be decoded."""
    from moldau.coordinator.consumer.embedded_protocol import read_assignment

    found: list[dict[str, list[int]] | None] = []
    for each in encoded:
        try:
            topics = read_assignment(each).assigned_partitions
            found.append({topic.topic: sorted(topic.partitions) for topic in topics})
        except MalformedMessage:
            found.append(None)
    return found
