"""The audit log: one JSON object a line for each decision of the authorizer.

The lines of the logger `moldau.audit` go to a file of their own where the configuration names one, else to the node's
own log. Denied requests are always written, allowed ones where the configuration asks.
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

log = logging.getLogger("moldau.audit")


class JsonAuditLog:
    """Writes decisions; the time is that of the node's clock, in UTC."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self.denied_count = 0
        """Decisions against a client since the start."""

    def decided(
        self, access: AclAccess, operation: AclOperation, kind: ResourceKind, name: str | None, is_allowed: bool
    ) -> None:
        self.denied_count += not is_allowed
        line = {
            "time": datetime.fromtimestamp(self._wall_ms() / 1000, UTC).isoformat(timespec="milliseconds"),
            "principal": str(access.principal),
            "host": access.host,
            "operation": operation.name,
            "resource_type": kind.name,
            "resource": name,
            "decision": "ALLOWED" if is_allowed else "DENIED",
        }
        log.info("%s", json.dumps(line, ensure_ascii=True))


def open_audit_file(config: Config) -> None:
    """Give the audit log the file that the configuration names. Raises OSError.

    Its level is its own, so that a request that alters the level of the node's other loggers does not silence it.
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
