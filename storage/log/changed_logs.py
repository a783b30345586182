"""The logs that changed since a periodic task took them last, so that the task visits only these.

    an append, a flush, a truncation, ... ──▶ Log.note_change ──▶ the `ChangedLogs` of each reader
    a reader, at its next time            ──▶ take_logs ──▶ the next change of such a log is noted again

After its first change a log notes no further one until a reader has taken it (`Log.is_change_noted`), so an append
usually only tests a flag.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.storage.log.log import Log


class ChangedLogs:
    """The logs that changed since a reader last took them, in the order of their first change."""

    __slots__ = ("_logs",)

    def __init__(self) -> None:
        self._logs: dict[Log, None] = {}

    def __len__(self) -> int:
        return len(self._logs)

    def add_log(self, log: Log) -> None:
        self._logs[log] = None

    def take_logs(self, count_max: int | None = None) -> list[Log]:
        """Remove and return at most `count_max` logs (None: all). The next change of each is recorded again, here and
        in the other collections.
        """
        logs = list(islice(self._logs, count_max))
        for log in logs:
            del self._logs[log]
            log.is_change_noted = False
        return logs
