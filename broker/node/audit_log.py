"""The audit log: one JSON object a line for each decision of the authorizer.

The lines of the logger `moldau.audit` go to a file of their own where the configuration names one, else to the node's
own log. Denied requests are always written, allowed ones where the configuration asks. A request may name thousands of
resources: beyond `DENIED_LINES_MAX` a second the denials of one client are counted, and one line tells their number.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from typing import Final

from broker.config.config import Config
from protocol.access import AclOperation
from security.access import ResourceKind
from security.acl.authorizer import AclAccess

FILE_SIZE_MAX: Final = 64 * 1024 * 1024
FILES_KEPT: Final = 4
"""A file that is full is renamed, and the oldest one deleted."""

DENIED_LINES_MAX: Final = 1_000
"""The most lines about denials of one client in a second: a line takes 20 us of the event loop."""

log = logging.getLogger("moldau.audit")
Client = tuple[str, str]
"""A principal and its address."""


class JsonAuditLog:
    """Writes decisions; the time is that of the node's clock, in UTC."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self.denied_count = 0
        """Decisions against a client since the start."""
        self._second = -1
        self._denied: dict[Client, int] = {}
        """The denials by client in this second."""

    def decided(
        self, access: AclAccess, operation: AclOperation, kind: ResourceKind, name: str | None, is_allowed: bool
    ) -> None:
        client = str(access.principal), access.host
        now_ms = self._wall_ms()
        if not is_allowed:
            self.denied_count += 1
            if now_ms // 1000 != self._second:
                self._begin_second(now_ms)
            denied = self._denied[client] = self._denied.get(client, 0) + 1
            if denied > DENIED_LINES_MAX:
                return
        self._write(
            now_ms,
            client,
            operation=operation.name,
            resource_type=kind.name,
            resource=name,
            decision="ALLOWED" if is_allowed else "DENIED",
        )

    def _begin_second(self, now_ms: int) -> None:
        """Write how many denials of the last second with denials have no line."""
        self._second = now_ms // 1000
        for client, count in self._denied.items():
            if count > DENIED_LINES_MAX:
                self._write(now_ms, client, decision="DENIED", without_line=count - DENIED_LINES_MAX)
        self._denied.clear()

    def _write(self, now_ms: int, client: Client, **more: str | int | None) -> None:
        time = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "principal": client[0], "host": client[1], **more}
        log.info("%s", json.dumps(line, ensure_ascii=True))


def open_audit_file(config: Config) -> None:
    """Give the audit log the file that the configuration names. Raises OSError.

    The audit log has its own level, so that a request that alters the level of the node's other loggers does not turn
    it off.
    """
    log.setLevel(logging.INFO)
    path = config.text_or_none("moldau.audit.log.file")
    if path is None:
        return
    handler = RotatingFileHandler(path, maxBytes=FILE_SIZE_MAX, backupCount=FILES_KEPT, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    for other in log.handlers:
        other.close()
    log.handlers[:] = [handler]
    log.propagate = False
