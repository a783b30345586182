"""The events that the shell reports to every machine, beside the requests that the machine defines itself."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from protocol.errors import ErrorCode


class Loaded(NamedTuple):
    """The whole log is replayed and committed. Requests follow."""


class Unloaded(NamedTuple):
    """This broker no longer leads the partition. Waiting clients are told to find the new coordinator. No event
    follows."""


class Tick(NamedTuple):
    """A deadline may have passed. One tick handles one deadline: ask `next_deadline_ms` again after it."""


class Appended(NamedTuple):
    """The records of the step before are in the log, which ends at this offset."""

    end_offset: int


class AppendRefused(NamedTuple):
    """The log refused the records of the step before: none of them is in it."""

    error: ErrorCode


class Committed(NamedTuple):
    """The high watermark: everything below this offset is committed."""

    end_offset: int


RuntimeEvent: TypeAlias = Loaded | Unloaded | Tick | Appended | AppendRefused | Committed
