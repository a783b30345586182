"""Asks a worker process to decode keys, values and headers, which may be hostile because users wrote them. This module
has the questions to the process, and its limits.

page ──▶ Decoder ──▶ LimitedWorker ──▶ the process: console/decoding/work.py
                                  └──▶ it ends: `WorkProcessEnded`, which the page says; the next question starts one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from moldau.broker.console.decoding.counting import RecordCount, RecordsNeeded, count_batches
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.messages.fetch import AbortedTransaction
from moldau.protocol.primitives import BytesLike, MalformedMessage

if TYPE_CHECKING:
    from moldau.broker.config.setting import Password
    from moldau.broker.console.decoding.selection import FetchedPiece, RecordFilter, SelectedRecords
    from moldau.broker.console.decoding.work import FilePlace, Question, SearchResult
    from moldau.broker.runtime.limited_work import LimitedWorker

REGISTRY: Final = "moldau.console.schema.registry"
"""The setting that names a schema registry."""
MEMORY_MAX: Final = 512 << 20
"""The most bytes of address space of the worker process. Python and its libraries take about 130 MB of them."""
QUESTION_CPU_S: Final = 3
QUESTION_S: Final = 5
"""The most time (s) for one question, including the wait for a schema registry."""
IDLE_S: Final = 10
"""The time (s) without a question after which the worker process ends."""
WAITING_MAX: Final = 64
"""The most questions that wait for the worker process."""
ENCODED_MAX: Final = 1 << 20
"""The most bytes of member assignments in one question."""


class Decoder:
    """Sends requests to the worker process of a node's console. A client is a user at an address; its requests are
    answered one after the other.
    """

    def __init__(self, environment: Environment, spawn: Spawn, registry: Password | None) -> None:
        """`registry`: the URL of a schema registry, which may have a password."""
        self._environment = environment
        self._spawn = spawn
        self._registry = None if registry is None else registry.reveal()
        self._work: LimitedWorker | None = None
        self._searches: LimitedWorker | None = None
        """The worker process for searches, so that no page waits for a search."""

    async def _ask(self, question: Question, asker: str) -> object:
        if self._work is None:  # A node whose pages are not looked at loads none of it.
            self._work = self._limited_work()
        return await self._work.ask(question, asker)

    def _limited_work(self) -> LimitedWorker:
        from moldau.broker.console.decoding.work import answers
        from moldau.broker.runtime.limited_work import LimitedWorker
        from moldau.broker.runtime.work_reply import WorkerLimits

        return LimitedWorker(
            self._environment,
            self._spawn,
            partial(answers, registry=self._registry),
            WorkerLimits(MEMORY_MAX, QUESTION_CPU_S),
            wall_s=QUESTION_S,
            idle_s=IDLE_S,
            waiting_max=WAITING_MAX,
        )

    async def select(self, piece: FetchedPiece, wanted: RecordFilter, asker: str) -> SelectedRecords:
        """Select the records of a piece that match `wanted`. Raises `WorkProcessEnded`."""
        from pickle import PickleBuffer

        from moldau.broker.console.decoding.work import selected

        piece = piece._replace(records=PickleBuffer(piece.records))
        return cast("SelectedRecords", await self._ask(partial(selected, piece=piece, wanted=wanted), asker))

    async def search(
        self, piece: FetchedPiece, wanted: RecordFilter, place: FilePlace | None, asker: str
    ) -> SearchResult | None:
        """Search a piece for records that match `wanted`. If `place` is given, the worker process reads the batches
        from that place in a file; the result is None if they are not there any more. Raises `WorkProcessEnded`.
        """
        from pickle import PickleBuffer

        from moldau.broker.console.decoding.work import searched

        if self._searches is None:
            self._searches = self._limited_work()
        piece = piece._replace(records=PickleBuffer(piece.records))
        question: Question = partial(searched, piece=piece, wanted=wanted, place=place)
        return cast("SearchResult | None", await self._searches.ask(question, asker))

    async def compiles(self, pattern: str, asker: str) -> bool:
        """Whether a pattern is a valid regular expression of RE2. Raises `WorkProcessEnded`."""
        from moldau.broker.console.decoding.work import compiles

        return bool(await self._ask(partial(compiles, pattern=pattern), asker))

    async def count(
        self,
        so_far: RecordCount,
        records: BytesLike,
        aborted: Sequence[AbortedTransaction],
        asker: str,
        *,
        dates_roughly: bool = False,
    ) -> tuple[RecordCount, bool]:
        """Count the records in fetched batches. Returns the new count, and whether all batches could be read. Raises
        `WorkProcessEnded`.

        This process counts if the headers of the batches are enough; otherwise the worker process counts. With
        `dates_roughly` the timestamp of the first record may be approximate, and nearly every header is enough.
        """
        from pickle import PickleBuffer

        from moldau.broker.console.decoding.work import counted

        told = replace(so_far)
        try:
            count_batches(told, records, aborted, decodes=False, dates_roughly=dates_roughly)
        except MalformedMessage:
            return told, False
        except RecordsNeeded:
            pass
        else:
            return told, True
        question: Question = partial(counted, so_far=so_far, records=PickleBuffer(records), aborted=aborted)
        return cast("tuple[RecordCount, bool]", await self._ask(question, asker))

    async def assignments(self, encoded: list[bytes], asker: str) -> list[dict[str, list[int]] | None]:
        """Decode the assignments of members: the partitions by topic, or None for an assignment that cannot be decoded.
        Raises `WorkProcessEnded`.
        """
        from moldau.broker.console.decoding.work import assignments

        found: list[dict[str, list[int]] | None] = []
        begin = 0
        while begin < len(encoded):
            end, size = begin + 1, len(encoded[begin])
            while end < len(encoded) and (size := size + len(encoded[end])) <= ENCODED_MAX:
                end += 1
            answer = await self._ask(partial(assignments, encoded=encoded[begin:end]), asker)
            found += cast("list[dict[str, list[int]] | None]", answer)
            begin = end
        return found
