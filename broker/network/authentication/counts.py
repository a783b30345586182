"""Counts of the successful and failed logins of a listener, by mechanism."""

from __future__ import annotations

from typing import Final

TLS: Final = "SSL"
"""The name in place of a mechanism for the TLS handshake."""


class AuthenticationCounts:
    """Totals since the start, by mechanism; handshakes are under `TLS`."""

    def __init__(self) -> None:
        self.succeeded: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self.renewed: dict[str, int] = {}
        """Clients that authenticated again."""
        self.not_renewed: dict[str, int] = {}
        """Clients that failed to authenticate again."""

    def count(self, mechanism: str, *, is_renewal: bool, has_failed: bool) -> None:
        """Count one login."""
        if is_renewal:
            of = self.not_renewed if has_failed else self.renewed
        else:
            of = self.failed if has_failed else self.succeeded
        of[mechanism] = of.get(mechanism, 0) + 1
