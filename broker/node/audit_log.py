"""The audit log: writes the decisions of the authorizer as lines with a JSON object. Decisions about one request that
differ only in the resource share a line.

    {"time": ..., "principal": "User:alice", "host": "192.0.2.7", "operation": "DESCRIBE", "resource_type": "GROUP",
     "resource": "g1", "resources": ["g1", "g2", ...], "count": 100000, "decision": "DENIED"}

`resources` and `count` are only in lines about several resources. The lines of the logger `moldau.audit` go to the
files that the configuration names; without such files they go to the node's own log. Denied requests are always
written. Allowed ones are written to another file if the configuration asks for them.

No client can push the history out of the files: a file of denials is deleted by its age alone, and each client has a
budget of lines and bytes, for a second and for a day. Beyond it the denials of a client are counted, and a line gives
their number. All clients together have a budget for a day. Beyond it only the first lines of each client are written.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from logging.handlers import BaseRotatingHandler, RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from moldau.broker.config.config import Config
from moldau.security.acl.authorizer import AclAccess, AuditedDecisions, Client
from moldau.storage.files.local_files import open_to_append

FILE_SIZE_MAX: Final = 64 * 1024 * 1024
FILES_KEPT: Final = 4
"""The number of full files with allowed requests that are kept. Older ones are deleted."""

SECOND_LINES_MAX: Final = 1_000
"""The maximum number of lines about denials of one client in a second: a line takes 20 us of the event loop."""
SECOND_SIZE_MAX: Final = 256 * 1024
"""The maximum size (bytes) of the lines about denials of one client in a second."""
DAY_SIZE_MAX: Final = 16 * 1024 * 1024
"""The maximum size (bytes) of the lines about denials of one client in a day (UTC)."""
DAY_SIZE_MAX_OF_ALL: Final = 256 * 1024 * 1024
"""The size (bytes) of all lines about denials in a day (UTC) above which a client gets no lines beyond its first lines
of the day.
"""
FIRST_SIZE: Final = 4 * 1024
"""The size (bytes) of a client's first lines of a day, which are written even if the budget of all clients is spent."""
CLIENTS_MAX: Final = 10_000
"""The maximum number of clients with budgets of their own in a day. All further clients share one budget."""
NAME_LENGTH_MAX: Final = 256
"""The maximum length (characters) of the name of a resource, a principal or a host in a line."""
ESCAPED_LENGTH_MAX: Final = 32
"""The maximum length (characters) of a name that is not printable ASCII: JSON may write each of its characters as up to
twelve.
"""
COUNT_INTERVAL_S: Final = 60
"""The interval (seconds) between lines that count the denials without a line of their own."""
COUNTED_CLIENTS_MAX: Final = 20
"""The maximum number of clients that get a line with a count at a time. The denials of all others are counted in one
line.
"""

RENAME_RETRY_S: Final = 60
"""The time (seconds) after which a file that could not be renamed is tried again."""

log = logging.getLogger("moldau.audit")
node_log = logging.getLogger("moldau")
FURTHER_CLIENTS: Final[Client] = ("*", "*")
_DAY_S: Final = 86_400
_ROLLED: Final = re.compile(r"\.(\d{8}T\d{6}Z(-\d+)?|\d)$")
"""The end of the file name of a full file of denials: the time, or the number that older versions used."""


class LineBudget:
    """The number and the size of the lines about denials of one client, in the current second and the current day."""

    __slots__ = ("day_size", "second", "second_lines", "second_size")

    def __init__(self) -> None:
        self.second = -1
        self.second_lines = self.second_size = self.day_size = 0

    def has_room(self, second: int, size: int) -> bool:
        if second != self.second:
            self.second = second
            self.second_lines = self.second_size = 0
        return (
            self.second_lines < SECOND_LINES_MAX
            and self.second_size + size <= SECOND_SIZE_MAX
            and self.day_size + size <= DAY_SIZE_MAX
        )

    def spend(self, size: int) -> None:
        self.second_lines += 1
        self.second_size += size
        self.day_size += size


class JsonAuditLog:
    """Writes the decisions of the authorizer to the audit log. Their time is that of the node's wall clock, in UTC."""

    def __init__(self, wall_ms: Callable[[], int], call_later: Callable[[float, Callable[[], None]], object]) -> None:
        """`call_later` calls a function after a number of seconds, like that of an event loop."""
        self._wall_ms = wall_ms
        self._call_later = call_later
        self.denied_count = 0
        """The number of denials since the start."""
        self._day = -1
        self._day_size = 0
        """The size (bytes) of the lines about denials in the current day."""
        self._budgets: dict[Client, LineBudget] = {}
        """The budgets of the clients to which something was denied in the current day."""
        self._uncounted: dict[Client, int] = {}
        """For each client, the number of denials that have no line of their own and are not yet in a line with a
        count.
        """

    def log_decisions(self, access: AclAccess, decisions: AuditedDecisions) -> None:
        """Write a line about decisions, or only count the denials if the client has no budget left."""
        now_ms = self._wall_ms()
        second = now_ms // 1000
        client = _cut(str(access.principal)), _cut(access.host)
        line = _line(now_ms, client, decisions)
        if decisions.is_allowed:
            log.info("%s", line, extra={"is_allowed": True})
            return
        self.denied_count += decisions.count
        self._begin_day(second // _DAY_S)
        client, budget = self._budget_of(client)
        size = len(line) + 1
        has_room_of_all = self._day_size + size <= DAY_SIZE_MAX_OF_ALL or budget.day_size + size <= FIRST_SIZE
        if has_room_of_all and budget.has_room(second, size):
            budget.spend(size)
            self._day_size += size
            log.info("%s", line)
        else:
            if not self._uncounted:
                self._call_later(COUNT_INTERVAL_S, self.write_counts)
            self._uncounted[client] = self._uncounted.get(client, 0) + decisions.count

    def _budget_of(self, client: Client) -> tuple[Client, LineBudget]:
        budget = self._budgets.get(client)
        if budget is None:
            if len(self._budgets) >= CLIENTS_MAX:
                client = FURTHER_CLIENTS
            budget = self._budgets.setdefault(client, LineBudget())
        return client, budget

    def _begin_day(self, day: int) -> None:
        """Reset the budgets if a day begins."""
        if day != self._day:
            self._day = day
            self._day_size = 0
            self._budgets.clear()

    def write_counts(self) -> None:
        """Write how many denials had no line of their own: one line for each of the clients that had the most, and one
        for all others. Called `COUNT_INTERVAL_S` after the first of them, and at a stop of the node.
        """
        counts = Counter(self._uncounted)
        self._uncounted = {}
        told = dict(counts.most_common(COUNTED_CLIENTS_MAX))
        others = counts.total() - sum(told.values())
        if others:
            told[FURTHER_CLIENTS] = told.get(FURTHER_CLIENTS, 0) + others
        for client, count in told.items():
            line = {**_head(self._wall_ms(), client), "decision": "DENIED", "without_line": count}
            log.info("%s", json.dumps(line, ensure_ascii=True))


def _head(now_ms: int, client: Client) -> dict[str, object]:
    time = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {"time": time, "principal": client[0], "host": client[1]}


def _line(now_ms: int, client: Client, decisions: AuditedDecisions) -> str:
    names = [None if name is None else _cut(name) for name in decisions.names]
    line = {
        **_head(now_ms, client),
        "operation": decisions.operation.name,
        "resource_type": decisions.kind.name,
        "resource": names[0],
        "decision": "ALLOWED" if decisions.is_allowed else "DENIED",
    }
    if decisions.count > 1:
        line |= {"resources": names, "count": decisions.count}
    return json.dumps(line, ensure_ascii=True)


def _cut(name: str) -> str:
    length_max = NAME_LENGTH_MAX if name.isascii() and name.isprintable() else ESCAPED_LENGTH_MAX
    return name if len(name) <= length_max else f"{name[:length_max]}... ({len(name)} characters)"


class _PrivateFile(logging.FileHandler):
    """A log file that other users of the machine cannot read, because it names principals, addresses and resources."""

    def _open(self) -> Any:
        return open_to_append(self.baseFilename)


class AllowedFile(_PrivateFile, RotatingFileHandler):
    """The file of allowed requests."""


class DenialsFile(_PrivateFile, BaseRotatingHandler):
    """The file of denials. When it is full, or when a day ends, it is renamed after its time. Renamed files are deleted
    when they are older than `retention_days`.
    """

    def __init__(self, path: str, retention_days: int) -> None:
        super().__init__(path, "a", encoding="utf-8")
        self._retention_s = retention_days * _DAY_S
        self._day = int(Path(self.baseFilename).stat().st_mtime) // _DAY_S
        self._retry_s = 0.0
        """The time (seconds, of a record) before which a failed renaming is not tried again."""

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        """Whether the file is full, or has lines of an earlier day."""
        size = 0 if self.stream is None else self.stream.tell()
        is_due = size >= FILE_SIZE_MAX or (size > 0 and int(record.created) // _DAY_S != self._day)
        if not is_due or record.created < self._retry_s:
            return False
        self._retry_s = record.created + RENAME_RETRY_S
        return True

    def doRollover(self) -> None:
        """Rename the file, open a new one, and delete renamed files that are too old. If that fails, the lines go on
        into the file that is open.
        """
        path = Path(self.baseFilename)
        try:
            _keep_full_file(path)
            opened = self._open()
            now_s = path.stat().st_mtime
        except OSError as error:
            node_log.warning("the audit log %s cannot be renamed, and its lines go on into it: %s", path, error)
            return
        if self.stream is not None:
            with suppress(OSError):
                self.stream.close()
        self.stream = opened
        self._retry_s = 0.0
        self._day = int(now_s) // _DAY_S
        for each in path.parent.glob(f"{path.name}.*"):
            with suppress(OSError):
                if _ROLLED.fullmatch(each.name[len(path.name) :]) and each.stat().st_mtime < now_s - self._retention_s:
                    each.unlink()


def _keep_full_file(path: Path) -> None:
    """Rename the file after the time of its last line, unless another process has removed it. Raises OSError."""
    try:
        ended_s = path.stat().st_mtime
    except FileNotFoundError:
        return
    name = f"{path.name}.{datetime.fromtimestamp(ended_s, UTC):%Y%m%dT%H%M%SZ}"
    number, target = 0, path.with_name(name)
    while target.exists():
        number += 1
        target = path.with_name(f"{name}-{number}")
    path.rename(target)


def open_audit_file(config: Config) -> None:
    """Give the audit log the files that the configuration names. Raises OSError.

    The audit log has its own level, so that a request that alters the level of the node's other loggers does not turn
    it off.
    """
    log.setLevel(logging.INFO)
    path = config.text_or_none("moldau.audit.log.file")
    if path is None:
        return
    handlers: list[logging.Handler] = [DenialsFile(path, config.integer("moldau.audit.log.retention.days"))]
    handlers[0].addFilter(lambda record: not _is_allowed(record))
    if config.flag("moldau.audit.log.allowed"):
        allowed = AllowedFile(f"{path}.allowed", maxBytes=FILE_SIZE_MAX, backupCount=FILES_KEPT, encoding="utf-8")
        allowed.addFilter(_is_allowed)
        handlers.append(allowed)
    for each in handlers:
        each.setFormatter(logging.Formatter("%(message)s"))
    for other in log.handlers:
        other.close()
    log.handlers[:] = handlers
    log.propagate = False


def _is_allowed(record: logging.LogRecord) -> bool:
    return getattr(record, "is_allowed", False)
