"""Requests that end in an exception of ours: the connection closes, clients come again, and nobody would notice.

Of a compiled connection nothing is heard: it does not look its methods up.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from broker.connection import Connection


@contextmanager
def failed_handlers(complaints: list[str]) -> Iterator[None]:
    """Each of them is a complaint."""
    close = Connection._failed

    def noted(connection: Connection) -> None:
        error = sys.exception()
        place = traceback.extract_tb(error.__traceback__)[-1] if error is not None else None
        where = f" in {place.filename.rpartition('/')[2]}:{place.lineno}" if place is not None else ""
        complaints.append(f"a handler failed: {type(error).__name__}: {error}{where}")
        close(connection)

    Connection._failed = noted  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Connection._failed = close  # type: ignore[method-assign]
