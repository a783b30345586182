"""One step of a machine under way: the effects that it has gathered so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from coordinator.runtime.effects import MachineReply, TransactionWrite, Waiter
from protocol.errors import ErrorCode

ChangeT = TypeVar("ChangeT")
StepT_contra = TypeVar("StepT_contra", contravariant=True)


class Outcome(Protocol[StepT_contra]):
    """What follows when the records of a step are committed, or are not: one of the two is called, once."""

    def committed(self, step: StepT_contra) -> None: ...

    def failed(self, step: StepT_contra, error: ErrorCode) -> None:
        """The error is the log's. After REQUEST_TIMED_OUT the records may yet be committed."""


@dataclass(slots=True)
class Step(Generic[ChangeT]):
    """A machine's own step is a subclass, with what the machine's decisions read."""

    now_ms: int
    """The clock of deadlines, which never jumps."""
    wall_ms: int
    """The wall clock, which records carry."""
    changes: list[ChangeT] = field(default_factory=list, kw_only=True)
    outcomes: list[Outcome[Self]] = field(default_factory=list, kw_only=True)
    replies: list[MachineReply] = field(default_factory=list, kw_only=True)
    notes: list[str] = field(default_factory=list, kw_only=True)
    commands: list[object] = field(default_factory=list, kw_only=True)
    transaction: TransactionWrite | None = field(default=None, kw_only=True)
    """What the changes are written as; None: outside of any transaction. The change that stands for a marker has no
    record."""

    def reply(self, waiter: Waiter, response: object) -> None:
        self.replies.append(MachineReply(waiter.token, response))

    def write(self, *changes: ChangeT) -> None:
        """Append changes to the log. All changes of a step are one batch: it is stored whole or not at all."""
        self.changes.extend(changes)

    def command(self, command: object) -> None:
        """Have the shell do something outside of the log, once the replies of this step are sent."""
        self.commands.append(command)

    def when_committed(self, outcome: Outcome[Self]) -> None:
        """Follow up when everything written up to the end of this step is committed."""
        self.outcomes.append(outcome)
