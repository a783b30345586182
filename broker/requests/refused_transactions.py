"""Transactional producers that were refused: a log line for each transactional id, because Java clients show no reason.

Until this broker coordinates transactions it refuses them with an error that every client treats as fatal.
"""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger("moldau.broker")

REMEMBERED_MAX: Final = 1_000
"""Transactional ids that are remembered; once there are more, all are forgotten, and ids are logged once more."""
SHOWN_LENGTH_MAX: Final = 200
"""Characters of a transactional id that a line shows, and that tell it from others."""


class RefusedTransactions:
    """Logs the first refusal of each transactional id."""

    def __init__(self) -> None:
        self._logged: dict[str, None] = {}

    def refused(self, transactional_id: str, client_host: str) -> None:
        """A request of a transactional producer was refused."""
        shown = transactional_id[:SHOWN_LENGTH_MAX]
        if shown in self._logged:
            return
        if len(self._logged) >= REMEMBERED_MAX:
            self._logged.clear()
        self._logged[shown] = None
        log.warning(
            "the producer with transactional.id %r from %s is refused: this broker coordinates no transactions yet;"
            " run the producer without transactional.id, or with enable.idempotence alone",
            shown,
            client_host,
        )
