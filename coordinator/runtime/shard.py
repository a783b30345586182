"""The base class of every coordinator's machine. It holds writes until the log has committed or refused them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from moldau.coordinator.runtime.machine import (
    Appended,
    AppendRefused,
    Committed,
    Effects,
    Loaded,
    MachineReply,
    RuntimeEvent,
    Tick,
    Unloaded,
)
from moldau.coordinator.runtime.step import Outcome, Step
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record
from moldau.protocol.records.stored_structs import UnreadableRecord

RequestT = TypeVar("RequestT")
ChangeT = TypeVar("ChangeT")
StepT = TypeVar("StepT", bound=Step[Any])


@dataclass(slots=True)
class Write(Generic[ChangeT, StepT]):
    """A batch that waits for its append or its commit, with the outcomes to call afterwards."""

    end_offset: int
    deadline_ms: int
    changes: list[ChangeT]
    outcomes: list[Outcome[StepT]]


class Shard(ABC, Generic[RequestT, ChangeT, StepT]):
    """A `StateMachine` over one partition of an internal topic.

    A subclass decides about requests, timers, loading and unloading, each within a step, and replays changes. This
    class keeps the writes of a step until they are committed, refused or overdue, and calls the outcomes in the order
    of the writes.
    """

    def __init__(self, committed_end_offset: int) -> None:
        self.is_loaded = False
        """Whether the whole log is replayed. Until then, `replay` gets changes that earlier leaders wrote."""
        self.committed_end_offset = committed_end_offset
        """The high watermark that was reported last."""
        self._unappended: Write[ChangeT, StepT] | None = None
        self._uncommitted: deque[Write[ChangeT, StepT]] = deque()
        self._appended_end_offset = 0
        """The end offset of the last append; 0 if this machine has appended nothing since it was loaded."""

    # Defined by each machine

    @property
    @abstractmethod
    def commit_timeout_ms(self) -> int:
        """The time (ms) that a write may wait for its commit before its outcomes fail with REQUEST_TIMED_OUT."""

    @abstractmethod
    def begin(self, now_ms: int, wall_ms: int) -> StepT:
        """Make a new step that has no effects yet."""

    @abstractmethod
    def decide(self, step: StepT, request: RequestT) -> None:
        """Decide about a request, and put the effects into the step."""

    @abstractmethod
    def record_of(self, change: ChangeT, wall_ms: int) -> Record:
        """The record that stores a change. Raises `UnreadableRecord`."""

    @abstractmethod
    def replay(self, change: ChangeT, end_offset: int) -> None:
        """Apply a change that is in the log. Until `Loaded` it is a change of an earlier leader, afterwards a change of
        this machine."""

    @abstractmethod
    def commit(self) -> None:
        """Make the changes of all records below `committed_end_offset` visible to readers."""

    def follow_commit(self, step: StepT) -> None:
        """React to the changes that were committed since the last call, including writes whose outcomes failed with
        REQUEST_TIMED_OUT before. A subclass may write records in this step; the default does nothing.
        """

    @abstractmethod
    def on_loaded(self, step: StepT) -> None:
        """Handle the end of loading: the whole log is replayed and committed."""

    @abstractmethod
    def on_unloaded(self, step: StepT) -> None:
        """Refuse all parked requests, because this broker no longer leads the partition. The base class refuses those
        that wait for a commit."""

    @abstractmethod
    def next_timer_ms(self) -> int | None:
        """The time (ms) at which the machine's next timer is due; None if no timer runs."""

    @abstractmethod
    def fire_timer(self, step: StepT) -> None:
        """Handle one timer that is due, if there is one."""

    @property
    def is_committed(self) -> bool:
        """Whether everything that was written is committed. If so, the reply to a request that writes nothing need not
        wait."""
        return not self._uncommitted and self._appended_end_offset <= self.committed_end_offset

    # The `StateMachine` contract

    def reply_at_once(self, event: RequestT | RuntimeEvent, now_ms: int, wall_ms: int) -> MachineReply | None:
        return None

    def next_deadline_ms(self) -> int | None:
        timer_ms = self.next_timer_ms()
        if not self._uncommitted:
            return timer_ms
        write_ms = self._uncommitted[0].deadline_ms
        return write_ms if timer_ms is None else min(timer_ms, write_ms)

    def step(self, event: RequestT | RuntimeEvent, now_ms: int, wall_ms: int) -> Effects:
        step = self.begin(now_ms, wall_ms)
        assert self._unappended is None or isinstance(event, (Appended, AppendRefused)), (
            "an append is reported before anything else happens"
        )
        match event:
            case Appended(end_offset, committed_end_offset):
                self.committed_end_offset = max(self.committed_end_offset, committed_end_offset)
                self._appended(step, end_offset)
            case Committed(end_offset):
                self.committed_end_offset = max(self.committed_end_offset, end_offset)
                self._advance(step)
            case Tick():
                self._tick(step)
            case AppendRefused(error):
                self._fail(step, self._take_unappended(), error)
            case Loaded():
                self.is_loaded = True
                self.on_loaded(step)
            case Unloaded():
                self.on_unloaded(step)
                while self._uncommitted:
                    self._fail(step, self._uncommitted.popleft(), ErrorCode.NOT_COORDINATOR)
            case request:
                self.decide(step, request)
        self._keep(step)
        transaction = step.transaction
        is_marker = transaction is not None and transaction.end is not None
        try:
            records = [] if is_marker else [self.record_of(change, wall_ms) for change in step.changes]
        except UnreadableRecord as error:
            return self._refuse_records(step, str(error))
        return Effects(records, step.replies, step.notes, step.commands, transaction)

    def _refuse_records(self, step: StepT, problem: str) -> Effects:
        """Refuse the records of a step, as the log refuses a batch that is too large. The effects are those of the step
        and of its refusal."""
        after = self.step(AppendRefused(ErrorCode.MESSAGE_TOO_LARGE), step.now_ms, step.wall_ms)
        return after._replace(
            replies=[*step.replies, *after.replies],
            notes=[*step.notes, f"nothing is written: {problem}", *after.notes],
            commands=[*step.commands, *after.commands],
        )

    # Writes that wait for their commit

    def _keep(self, step: StepT) -> None:
        """Keep the changes and outcomes of a step until the log has accepted or refused the batch."""
        if step.changes:
            self._unappended = Write(-1, step.now_ms + self.commit_timeout_ms, step.changes, step.outcomes)
        elif step.outcomes and self._uncommitted:
            self._uncommitted[-1].outcomes.extend(step.outcomes)
        elif step.outcomes and self.committed_end_offset < self._appended_end_offset:
            # The outcomes of the last write have failed with REQUEST_TIMED_OUT, and its records may still be committed.
            deadline_ms = step.now_ms + self.commit_timeout_ms
            self._uncommitted.append(Write(self._appended_end_offset, deadline_ms, [], step.outcomes))
        else:
            for outcome in step.outcomes:
                outcome.on_committed(step)
            assert not step.changes, "what follows a commit writes nothing"

    def _tick(self, step: StepT) -> None:
        while self._uncommitted and self._uncommitted[0].deadline_ms <= step.now_ms:
            self._fail(step, self._uncommitted.popleft(), ErrorCode.REQUEST_TIMED_OUT)
        if not step.changes:
            self.fire_timer(step)

    def _take_unappended(self) -> Write[ChangeT, StepT]:
        write, self._unappended = self._unappended, None
        assert write is not None, "an append is reported for a step that wrote nothing"
        return write

    def _appended(self, step: StepT, end_offset: int) -> None:
        write = self._take_unappended()
        for change in write.changes:
            self.replay(change, end_offset)
        write.end_offset = self._appended_end_offset = end_offset
        write.changes = []
        self._uncommitted.append(write)
        self._advance(step)

    def _fail(self, step: StepT, write: Write[ChangeT, StepT], error: ErrorCode) -> None:
        for outcome in write.outcomes:
            outcome.on_failed(step, error)

    def _advance(self, step: StepT) -> None:
        """Make committed changes visible to readers, call the outcomes of the writes in their order, and let the
        subclass react."""
        self.commit()
        while self._uncommitted and self._uncommitted[0].end_offset <= self.committed_end_offset:
            for outcome in self._uncommitted.popleft().outcomes:
                outcome.on_committed(step)
        self.follow_commit(step)
