"""A stage that writes down what its machine does, for transcripts.

The commands that every machine takes; `respond` goes to `check_transcript`:

    wait MS      hold      release      refuse ERROR      reload      unload

Records are committed with their append, unless `hold` says that they wait for `release`; `refuse` is about one batch.
Times count from the beginning of the transcript.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Final

from moldau.coordinator.runtime.machine import Effects, Loaded, Unloaded, Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.schema import fields_of
from tests.support.machine_stage import WALL_MS, Batch, MachineStage, ShardT
from tests.support.transcripts import Command

NOTHING: Final[tuple[object, ...]] = (None, "", b"", [])


class MachineScribe(MachineStage[ShardT]):
    """The first base of a scribe, before the stage of its machine."""

    lines: list[str]

    @abstractmethod
    def said(self, response: object) -> str:
        """A reply as a reader wants it."""

    @abstractmethod
    def written(self, change: Any) -> str:
        """A change as a reader wants it."""

    def respond(self, command: Command) -> list[str]:
        self.lines = []
        getattr(self, "do_" + command.name.replace("-", "_"))(command)
        return self.lines

    def waiter_of(self, command: Command, version: int) -> Waiter:
        """A waiter by the name that `as=` gives it, or by that of its client."""
        self.token += 1
        default = command.options.get("client") or command.options.get("member") or f"#{self.token}"
        return Waiter(command.options.get("as", default), command.int("v", version))

    # The stage

    def step(self, event: Any) -> None:
        if isinstance(event, Loaded):
            self.lines = []
        super().step(event)

    def append_error(self, effects: Effects) -> ErrorCode:
        error, self.refusal = self.refusal, ErrorCode.NONE
        return error

    def refused(self, error: ErrorCode) -> None:
        self.lines.append(f"the log refuses: {error.name}")

    def appended(self, batch: Batch, cause: object) -> None:
        self.lines += [f"write {self.written(change)}" for change in batch.changes]

    def noted(self, note: str) -> None:
        self.lines.append(f"note {note}")

    def deliver(self, token: object, response: object) -> None:
        self.lines.append(f"tell {token}: {self.said(response)}")

    def replaced(self, *, is_told: bool) -> None:
        super().replaced(is_told=is_told)
        self.commands.clear()

    def tick(self) -> None:
        before, self.lines = self.lines, []
        super().tick()
        told = [f"at {self.now_ms}:", *(f"  {line}" for line in self.lines)] if self.lines else []
        self.lines = before + told

    # The world

    def do_wait(self, command: Command) -> None:
        self.wait(int(command.arguments[0]))

    def do_hold(self, command: Command) -> None:
        self.is_held = True

    def do_release(self, command: Command) -> None:
        self.release()

    def do_refuse(self, command: Command) -> None:
        self.refusal = ErrorCode[command.arguments[0]]

    def do_unload(self, command: Command) -> None:
        self.step(Unloaded())

    def do_reload(self, command: Command) -> None:
        """Reload the shard, as after a restart of the broker, or after the partition moved away and back."""
        self.take_over(is_told=False, end_offset=self.end_offset)


def names_in(command: Command, option: str) -> list[str]:
    return [name for name in command.options.get(option, "").split(",") if name]


def brief(value: object, *left_out: str) -> str:
    """A value of any shape: of a message the fields that say something, of an id of 16 equal letters the letter."""
    match value:
        case Enum():
            return value.name
        case bytes():
            return value[:1].decode() if value == value[:1] * 16 else str(value)
        case str():
            return value
        case Mapping():
            return "{" + " ".join(f"{brief(key)}:{brief(each)}" for key, each in value.items()) + "}"
        case tuple() if hasattr(value, "_asdict"):
            return "/".join(map(brief, value))
        case Collection():
            each = sorted(map(brief, value)) if isinstance(value, set | frozenset) else map(brief, value)
            return f"[{' '.join(each)}]"
        case None | int() | float():
            return str(value)
    return told(value, *left_out)


def told(message: object, *left_out: str) -> str:
    """The fields of a message that say something, as `name=value`."""
    pairs = ((field.name, getattr(message, field.name)) for field in fields_of(type(message)))
    said = (f"{name}={moment(name, value)}" for name, value in pairs if name not in left_out and value not in NOTHING)
    return f"({' '.join(said)})"


def moment(name: str, value: object) -> str:
    """A field's value; a time counts from the beginning."""
    is_time = isinstance(value, int) and value >= WALL_MS and ("timestamp" in name or name.endswith("_ms"))
    return str(value - WALL_MS) if is_time and isinstance(value, int) else brief(value)
