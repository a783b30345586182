"""A connection of a client whose request is interrupted."""

from __future__ import annotations

import socket

import pytest

from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.tables.client.connection import BrokerConnection
from moldau.tables.client.settings import Address


def test_a_request_that_ctrl_c_interrupts_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer would come first, in place of that to the next request."""
    ours, theirs = socket.socketpair()
    connection = object.__new__(BrokerConnection)
    connection.address = Address("127.0.0.1", 9092)
    connection._socket, connection._timeout_s = ours, 1.0
    connection._count, connection._client_id = 0, b"client"

    def interrupted(_: int) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection._exchange(ApiVersionsRequest(), 0, 0)
    assert ours.fileno() == -1
    theirs.close()
