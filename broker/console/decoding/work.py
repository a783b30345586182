"""The work of the worker process: it answers questions. A question is a function of the state that the process
keeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from pickle import PickleBuffer
from typing import Final, NamedTuple, TypeAlias

from moldau.broker.config.values import linear_matcher
from moldau.broker.console.decoding.counting import Counted, count_batches
from moldau.broker.console.decoding.schemas import Schemas
from moldau.broker.console.decoding.selection import Piece, Selected, Wanted, select
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.messages.fetch import AbortedTransaction
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.storage.files.port import FileSystem


class State(NamedTuple):
    """What the process keeps between questions."""

    fs: FileSystem
    schemas: Schemas | None
    """None if no registry is set."""


SEARCH_EFFORT: Final = 1 << 21
"""The effort (`selection.select`) after which a search lets other questions go first: 0.1 to 0.3 s."""
Question: TypeAlias = Callable[[State], object]
"""A function of the state that can be pickled: a `functools.partial` of a function below."""


def answers(fs: FileSystem, registry: str | None) -> Generator[object, Question, None]:
    """A generator that answers each question that is sent to it. The first value, None, answers no question."""
    schemas = None if registry is None else Schemas(registry, lambda: round(time.monotonic() * 1000))
    state = State(fs, schemas)
    answer: object = None
    while True:
        question = yield answer
        answer = question(state)


def selected(state: State, piece: Piece, wanted: Wanted) -> Selected:
    """The records of a piece that are wanted."""
    return select(piece, wanted, state.schemas)


class Place(NamedTuple):
    """The place of whole batches in the .log file of a segment. The last batch may be cut short."""

    path: str
    inode: int
    """The inode of the file, because another file may have the path meanwhile."""
    position: int
    size: int


class Searched(NamedTuple):
    """What a search has found in a piece."""

    selected: Selected
    begins_ms: int
    """The largest timestamp of the first batch; -1 if there is no batch."""


def searched(state: State, piece: Piece, wanted: Wanted, place: Place | None) -> Searched | None:
    """The records of a piece that are wanted. The search ends after about `SEARCH_EFFORT`. If `place` is given, the
    bytes of the piece are read there; None if they are not there any more.
    """
    try:
        data = bytes(piece.records) if place is None else _bytes_at(state.fs, place)
        if data is None:
            return None
        first = next(iterate_batches(data), None)
        found = select(piece._replace(records=data), wanted, state.schemas, SEARCH_EFFORT)
    except MalformedMessage:
        return None
    return Searched(found, -1 if first is None else first[1].max_timestamp)


def _bytes_at(fs: FileSystem, place: Place) -> bytes | None:
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
    state: State, so_far: Counted, records: BytesLike | PickleBuffer, aborted: Iterable[AbortedTransaction]
) -> tuple[Counted, bool]:
    """Count the records of fetched batches. Returns the count so far, and whether all batches could be read."""
    try:
        count_batches(so_far, bytes(records), aborted)
    except MalformedMessage:
        return so_far, False
    return so_far, True


def compiles(state: State, pattern: str) -> bool:
    """Whether a pattern is an expression of RE2."""
    return linear_matcher(pattern) is not None


def assignments(state: State, encoded: Iterable[bytes]) -> list[dict[str, list[int]] | None]:
    """The partitions of each member's assignment, by topic; None for an assignment that cannot be read."""
    from moldau.coordinator.consumer.embedded_protocol import read_assignment

    found: list[dict[str, list[int]] | None] = []
    for each in encoded:
        try:
            topics = read_assignment(each).assigned_partitions
            found.append({topic.topic: sorted(topic.partitions) for topic in topics})
        except MalformedMessage:
            found.append(None)
    return found
