"""The events that the shell reports to every machine, besides the requests that each machine defines."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from moldau.protocol.errors import ErrorCode


class Loaded(NamedTuple):
    """The whole log is replayed and committed. Requests follow after this event."""


class Unloaded(NamedTuple):
    """This broker no longer leads the partition.

    The machine tells waiting clients to look up the new coordinator. No event follows.
    """


class Tick(NamedTuple):
    """A deadline may have passed. One tick handles one deadline: ask `next_deadline_ms` again after it."""


class Appended(NamedTuple):
    """The records of the preceding step are in the log, which now ends at this offset."""

    end_offset: int
    committed_end_offset: int = 0
    """The high watermark after the append. Without other replicas in sync the records are committed already."""


class AppendRefused(NamedTuple):
    """The log refused the records of the preceding step: none of them was appended."""

    error: ErrorCode


class Committed(NamedTuple):
    """The high watermark moved: every record below this offset is committed."""

    end_offset: int


RuntimeEvent: TypeAlias = Loaded | Unloaded | Tick | Appended | AppendRefused | Committed
