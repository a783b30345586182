"""The result of an append: the assigned offsets, or the error for which the batch was refused."""

from __future__ import annotations

from enum import Enum, auto

from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_validation import RecordError


class AppendOrigin(Enum):
    """The source of batches, which decides the checks of an append."""

    CLIENT = auto()
    """A client: everything is checked."""
    COORDINATOR = auto()
    """A coordinator in this broker: its batches are well formed, and may be transaction markers."""
    RAFT = auto()
    """The Raft leader of the metadata log: control batches, no producers, several batches at once."""


class AppendResult:
    """The result of one append. A refusal has an error and offsets of -1, and the log is unchanged."""

    __slots__ = (
        "base_offset",
        "error",
        "error_message",
        "is_duplicate",
        "is_postponed",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        error: ErrorCode,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        error_message: str | None = None,
        record_errors: tuple[RecordError, ...] = (),
        is_duplicate: bool = False,
        is_postponed: bool = False,
    ) -> None:
        self.error = error
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.error_message = error_message
        self.record_errors = record_errors
        self.is_duplicate = is_duplicate
        self.is_postponed = is_postponed
        """The batch is not refused, but so large that an executor thread has to validate it; `append_examined` then
        takes it."""

    def __repr__(self) -> str:
        return f"AppendResult({self.error.name}, {self.base_offset}..{self.last_offset}, {self.error_message})"
