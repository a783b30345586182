"""One step of a machine: the effects that it has collected so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from moldau.coordinator.runtime.effects import MachineReply, TransactionWrite, Waiter
from moldau.protocol.errors import ErrorCode

ChangeT = TypeVar("ChangeT")
StepT_contra = TypeVar("StepT_contra", contravariant=True)


class Outcome(Protocol[StepT_contra]):
    """The continuation of a step after its write. One of the two methods is called, exactly once."""

    def committed(self, step: StepT_contra) -> None: ...

    def failed(self, step: StepT_contra, error: ErrorCode) -> None:
        """The write failed with this error of the log. After REQUEST_TIMED_OUT the records may still be committed."""


@dataclass(slots=True)
class Step(Generic[ChangeT]):
    """The base class of a step. A machine's subclass adds the state that its decisions read."""

    now_ms: int
    """The monotonic clock of deadlines (ms)."""
    wall_ms: int
    """The wall clock (ms), which records carry."""
    changes: list[ChangeT] = field(default_factory=list, kw_only=True)
    outcomes: list[Outcome[Self]] = field(default_factory=list, kw_only=True)
    replies: list[MachineReply] = field(default_factory=list, kw_only=True)
    notes: list[str] = field(default_factory=list, kw_only=True)
    commands: list[object] = field(default_factory=list, kw_only=True)
    transaction: TransactionWrite | None = field(default=None, kw_only=True)
    """The transaction to which the changes belong; None: outside of any transaction.

    The change that represents a marker has no record.
    """

    def reply(self, waiter: Waiter, response: object) -> None:
        self.replies.append(MachineReply(waiter.token, response))

    def write(self, *changes: ChangeT) -> None:
        """Append changes to the log. All changes of a step are one batch: all of them are stored or none."""
        self.changes.extend(changes)

    def command(self, command: object) -> None:
        """Ask the shell for an action outside of the log, after the replies of this step are sent."""
        self.commands.append(command)

    def when_committed(self, outcome: Outcome[Self]) -> None:
        """Call the outcome when all writes up to the end of this step are committed."""
        self.outcomes.append(outcome)
