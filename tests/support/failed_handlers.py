"""Exceptions that the broker logs as its own bugs, which clients do not notice because they reconnect."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

LOGGER = logging.getLogger("moldau")


class _Complaining(logging.Handler):
    def __init__(self, complaints: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._complaints = complaints

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        frames = traceback.extract_tb(error.__traceback__)
        where = f" in {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
        self._complaints.append(f"{record.getMessage()}: {type(error).__name__}: {error}{where}")


@contextmanager
def failed_handlers(complaints: list[str]) -> Iterator[None]:
    """Report each logged exception as a complaint."""
    handler = _Complaining(complaints)
    LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
