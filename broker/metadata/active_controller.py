"""Runs the controller while this node leads: passes requests to it, appends its decisions to the metadata log, and runs
its timer.

A decision about many partitions is made, appended and replayed in slices (`Decision.further_batches`), one in each
iteration of the event loop. Requests that arrive meanwhile wait, because the controller makes one decision after the
other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from moldau.broker.metadata.metadata_log import DiskFull
from moldau.broker.metadata.publisher import MetadataPublisher, Reply, no_retry
from moldau.broker.runtime.environment import Environment
from moldau.kraft.controller.controller import Controller
from moldau.kraft.controller.decision import Decision
from moldau.kraft.image.metadata_image import Provenance
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.stored_structs import UnreadableRecord
from moldau.protocol.refusals import refused_with_text
from moldau.security.principal import NODE, Requester
from moldau.security.quotas.limits import QuotaTags

REFUSED_RETRY_MS: Final = 1_000
STALL_MS_MIN: Final = 100
"""A timer that fires more than this time (ms) late shows that the process was suspended, or that the event loop was
blocked.
"""
SECOND_LOOK_MS: Final = 50
"""The time (ms) for which a late timer is put off, so that heartbeats that arrived during the delay are read before any
broker is fenced.
"""

T = TypeVar("T")
Slices: TypeAlias = Generator[None, None, T]
"""A generator that does a part of its work in each step, and returns a result at the end."""
AppendRecords = Callable[[Sequence[object], int], Provenance]
"""Appends a batch of metadata records to the log, in the record versions of a metadata.version (the second argument).
Returns the position in the log after the batch. Raises `DiskFull` and `UnreadableRecord`.
"""


class ControllerWork(NamedTuple):
    """One or more decisions that wait or are in progress. `given_up` is called if the controller's term ends before
    they are complete, `failed` if a bug ends them.
    """

    slices: Slices[None]
    given_up: Callable[[], None] = no_retry
    failed: Callable[[], None] = no_retry


class ActiveController:
    """The active controller of one term. The publisher publishes its decisions once they are committed."""

    def __init__(
        self,
        controller: Controller,
        environment: Environment,
        publisher: MetadataPublisher,
        append: AppendRecords,
        raise_version: Callable[[int], None],
    ) -> None:
        """`raise_version`: lets the Raft machine write a higher kraft.version."""
        self._controller = controller
        self._raise_version = raise_version
        self._environment = environment
        self._publisher = publisher
        self._append = append
        self._end_offset = controller.image.provenance.end_offset
        self._under_way: ControllerWork | None = None
        self._waiting: deque[ControllerWork] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._is_second_look = False
        self._is_over = False
        self._is_refused = False
        """Whether the disk had no room for the last periodic decisions of the controller, which are tried again after
        `REFUSED_RETRY_MS`.
        """

    def begin(self, decisions: Sequence[Decision], cannot_lead: Callable[[], None]) -> None:
        """Write the first decisions of a term. `cannot_lead` is called if the disk has no room for these decisions."""
        self._take_turn(ControllerWork(self._begun(decisions, cannot_lead)))

    def _begun(self, decisions: Sequence[Decision], cannot_lead: Callable[[], None]) -> Slices[None]:
        if not (yield from self._carry_out_all(decisions)):
            cannot_lead()
        self._arm()

    def submit(
        self,
        request: object,
        reply: Reply,
        given_up: Callable[[], None],
        requester: Requester = NODE,
    ) -> None:
        """Let the controller decide on a request. `reply` gets the response once the decision is committed; `given_up`
        is called instead if the term ends before that.

        If no other decision is in progress, the decision begins at once, and an exception in its first slice is raised
        here. After an exception at any other time `reply` gets UNKNOWN_SERVER_ERROR, and the loop's exception handler
        gets the exception.
        """

        def failed() -> None:
            reply(refused_with_text(request, None, ErrorCode.UNKNOWN_SERVER_ERROR))

        self._take_turn(ControllerWork(self._submitted(request, reply, given_up, requester), given_up, failed))

    def _submitted(
        self, request: object, reply: Reply, given_up: Callable[[], None], requester: Requester
    ) -> Slices[None]:
        decision = self._controller.step(request, self._environment.monotonic_ms(), requester)
        _, answer = yield from self._carry_out(decision)
        self._publisher.reply_when_committed(self._end_offset, reply, answer, given_up)
        self._arm()

    def mutation_tokens(self) -> dict[QuotaTags, float]:
        """The balance (tokens) of each client that has a controller mutation quota (KIP-599)."""
        return self._controller.mutation_tokens(self._environment.monotonic_ms())

    def note_disconnected(self, broker_id: int) -> None:
        """Note that a connection to a broker broke, so that the broker may have failed."""
        self._controller.note_disconnected(broker_id, self._environment.monotonic_ms())
        self._arm()

    def note_last_heard(self, broker_id: int, heard_ms: int) -> None:
        """Note that a broker was last alive at `heard_ms`. The broker runs on the node that led the quorum before, and
        the time is that of the node's last response.
        """
        self._controller.note_last_heard(broker_id, heard_ms)
        self._arm()

    def resign(self) -> None:
        """End the term. Requests that wait are given up now, the decision in progress once its slice is done."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.given_up()

    # Turns

    def _take_turn(self, work: ControllerWork) -> None:
        """Do the first slice of `work` now; if other work is in progress, once that is done."""
        if self._under_way is not None:
            self._waiting.append(work)
        else:
            self._under_way = work
            self._go_on(work)

    def _go_on(self, begun: ControllerWork | None = None) -> None:
        """Do the next slice of the work in progress; after its last slice, begin the work that waits. An exception of a
        bug is raised; `failed` is also called, unless the slice is the first one of `begun`.
        """
        while self._under_way is not None:
            if self._is_over:
                self._under_way.given_up()
                self._under_way = None
                return
            try:
                is_done = next(self._under_way.slices, self) is self
            except BaseException:  # A bug ends one decision, and not the term.
                if self._under_way is not begun:
                    self._under_way.failed()
                self._under_way = self._waiting.popleft() if self._waiting else None
                asyncio.get_running_loop().call_soon(self._go_on)
                raise
            if not is_done:
                asyncio.get_running_loop().call_soon(self._go_on)
                return
            self._under_way = self._waiting.popleft() if self._waiting else None

    def _carry_out_all(self, decisions: Iterable[Decision]) -> Slices[bool]:
        """Write decisions to the log, until the disk has no room for one of them. Returns whether all were written."""
        for decision in decisions:
            is_written, _ = yield from self._carry_out(decision)
            if not is_written:
                return False
        return True

    def _carry_out(self, decision: Decision) -> Slices[tuple[bool, object]]:
        """Write a decision to the log. Returns whether all of it was written, and the response, which has an error if
        the disk has no room, or if a record is too long for its readers. If a decision is written in slices, its first
        batches may have been written even if a later one was not.

        DIVERGES: in Apache Kafka a full disk under the metadata log stops the node.
        """
        if decision.kraft_version is not None:
            self._raise_version(decision.kraft_version)
        try:
            self._append_batch(decision.records)
            for records in decision.further_batches:
                yield
                self._append_batch(records)
        except (DiskFull, UnreadableRecord) as error:
            if decision.reply is None:
                return False, None
            from moldau.broker.metadata.refusals import failed_write_response

            # DIVERGES: Apache Kafka answers UNKNOWN_SERVER_ERROR if a string of a record is too long.
            code = ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, DiskFull) else ErrorCode.INVALID_REQUEST
            return False, failed_write_response(decision.reply, code, str(error))
        return True, decision.reply

    def _append_batch(self, records: Sequence[object]) -> None:
        if not records:
            return
        controller = self._controller
        provenance = self._append(records, controller.image.features.metadata_version)
        self._end_offset = provenance.end_offset
        delta = controller.replay(records, provenance, self._environment.monotonic_ms())
        self._publisher.publish_later(controller.state.fork(), delta)

    def _arm(self) -> None:
        """Set the timer for the controller's next deadline. A timer that is set for a later time is set anew. One that
        is set for an earlier time stays: it fires too early, because a heartbeat can move the deadline.
        """
        if self._is_over:
            return
        now_ms = self._environment.monotonic_ms()
        delay_ms = max(0, self._controller.next_deadline_ms() - now_ms)
        if self._is_refused:
            delay_ms = max(delay_ms, REFUSED_RETRY_MS)
        if self._timer is not None:
            if self._due_ms <= now_ms + delay_ms:
                return
            self._timer.cancel()
        self._due_ms = now_ms + delay_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        late_ms = self._environment.monotonic_ms() - self._due_ms
        if late_ms > STALL_MS_MIN and not self._is_second_look:
            # Heartbeats that arrived during the delay have not been read yet, so their absence must not fence a broker.
            self._is_second_look = True
            self._timer = asyncio.get_running_loop().call_later(SECOND_LOOK_MS / 1000, self._tick)
            return
        self._is_second_look = False
        self._take_turn(ControllerWork(self._ticked()))

    def _ticked(self) -> Slices[None]:
        decisions = self._controller.tick(self._environment.monotonic_ms())
        self._is_refused = not (yield from self._carry_out_all(decisions))
        self._arm()
