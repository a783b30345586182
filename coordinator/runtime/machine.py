"""The contract between a machine and the shell that runs it.

    event ──▶ step ──▶ records (one atomic batch) ──appended──▶ replay ──committed──▶ replies that waited for it
                 └───▶ replies that need no record

The shell owns the log of one partition. It loads a new machine by replaying the log, then reports `Loaded`, and from
then on steps one event after another. It appends the records of a step and reports the result of the append before any
other event. A machine that loses its partition is dropped; the next leader's machine loads from the log.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from moldau.coordinator.runtime.effects import Effects
from moldau.coordinator.runtime.events import RuntimeEvent

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
LoadedT_contra = TypeVar("LoadedT_contra", contravariant=True)


class StateMachine(Protocol[RequestT_contra, LoadedT_contra]):
    """A deterministic coordinator of one partition: it reads no clock and does no I/O.

    `RequestT_contra`: the events that the machine itself defines. `LoadedT_contra`: the changes that its record reader
    produces.
    """

    def replay(self, change: LoadedT_contra, end_offset: int) -> None:
        """Apply a change of the log; its batch ends at `end_offset`."""

    def step(self, event: RequestT_contra | RuntimeEvent, now_ms: int, wall_ms: int) -> Effects:
        """Decide about an event. `now_ms` is the monotonic clock of deadlines, `wall_ms` the wall clock of records."""

    def next_deadline_ms(self) -> int | None:
        """The time of the next `Tick`, on the clock of deadlines (ms); None where no deadline is set."""
