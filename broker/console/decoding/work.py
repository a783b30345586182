"""The work of the process: it answers questions, each a function of what the process keeps between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from pickle import PickleBuffer
from typing import NamedTuple, TypeAlias

from moldau.broker.config.values import linear_match
from moldau.broker.console.decoding.counting import Counted, count_batches
from moldau.broker.console.decoding.schemas import Schemas
from moldau.broker.console.decoding.selection import Piece, Selected, Wanted, select
from moldau.protocol.messages.fetch import AbortedTransaction
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.storage.files.port import FileSystem


class State(NamedTuple):
    """What the process keeps between questions."""

    schemas: Schemas | None
    """None if no registry is set."""


Question: TypeAlias = Callable[[State], object]
"""Picklable: a `functools.partial` of a function below."""


def answers(fs: FileSystem, registry: str | None) -> Generator[object, Question, None]:
    """Answers questions without end. The first value is None, and answers none."""
    schemas = None if registry is None else Schemas(registry, lambda: round(time.monotonic() * 1000))
    state = State(schemas)
    answer: object = None
    while True:
        question = yield answer
        answer = question(state)


def selected(state: State, piece: Piece, wanted: Wanted) -> Selected:
    """The records of a piece that are wanted."""
    return select(piece, wanted, state.schemas)


def counted(
    state: State, so_far: Counted, records: BytesLike | PickleBuffer, aborted: Iterable[AbortedTransaction]
) -> tuple[Counted, bool]:
    """What was counted of fetched batches, and whether all of them can be read."""
    try:
        count_batches(so_far, bytes(records), aborted)
    except MalformedMessage:
        return so_far, False
    return so_far, True


def compiles(state: State, pattern: str) -> bool:
    """Whether a pattern is an expression of RE2."""
    return linear_match(pattern) is not None


def assignments(state: State, encoded: Iterable[bytes]) -> list[dict[str, list[int]] | None]:
    """The partitions by topic of members' assignments; None for one that cannot be read."""
    from moldau.coordinator.consumer.embedded_protocol import read_assignment

    found: list[dict[str, list[int]] | None] = []
    for each in encoded:
        try:
            topics = read_assignment(each).assigned_partitions
            found.append({topic.topic: sorted(topic.partitions) for topic in topics})
        except MalformedMessage:
            found.append(None)
    return found
