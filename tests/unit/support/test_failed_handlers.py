"""A handler that raises is told of, and closes its connection as ever."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace
from typing import cast

import pytest

from broker.connection import Connection
from tests.support.failed_handlers import failed_handlers


@pytest.mark.skipif(not isinstance(Connection._failed, FunctionType), reason="a compiled connection is not listened to")
def test_an_exception_of_ours_is_a_complaint() -> None:
    complaints: list[str] = []
    closed: list[str] = []
    connection = SimpleNamespace(client_host="a host", close=lambda reason, level: closed.append(reason))
    with failed_handlers(complaints):
        try:
            raise KeyError("nobody")
        except KeyError:
            Connection._failed(cast("Connection", connection))
    assert closed == ["the handler failed"]
    assert complaints[0].startswith("a handler failed: KeyError: 'nobody' in test_failed_handlers.py")
    assert Connection._failed.__qualname__ == "Connection._failed", "as it was"
