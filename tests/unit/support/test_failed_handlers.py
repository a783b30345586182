"""An exception of ours that is logged is told of; an error without one is not."""

from __future__ import annotations

import logging

from tests.support.failed_handlers import LOGGER, failed_handlers


def test_an_exception_of_ours_is_a_complaint() -> None:
    complaints: list[str] = []
    log = logging.getLogger("moldau.connection")
    with failed_handlers(complaints):
        log.error("the disk refused")
        try:
            raise KeyError("nobody")
        except KeyError:
            log.exception("a handler failed")
    log.exception("too late")
    (told,) = complaints
    assert told.startswith("a handler failed: KeyError: 'nobody' in test_failed_handlers.py")
    assert not LOGGER.handlers, "as it was"
