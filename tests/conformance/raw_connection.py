"""A client of raw requests: one connection, a request at a time, any version."""

from __future__ import annotations

import socket
import struct

from moldau.protocol.frames import request_frame, response_of, size_prefixed
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.outcome import Failed


class Connection:
    """A connection of one client, which sends a request at a time."""

    def __init__(self, port: int, client_id: str) -> None:
        self._client_id = client_id.encode()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)

    def ask(self, request: object, version: int) -> object:
        self._socket.sendall(size_prefixed(request_frame(request, version, 1, self._client_id)))
        (size,) = struct.unpack(">i", self._received(4))
        return response_of(type(request), version, self._received(size))

    def close(self) -> None:
        self._socket.close()

    def log_in(self, user: str, password: str) -> None:
        """By SASL PLAIN. Raises `Failed` if the broker refuses."""
        self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        words = f"\0{user}\0{password}".encode()
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=words), 2)
        assert isinstance(answer, SaslAuthenticateResponse)
        if answer.error_code:
            raise Failed(f"{user} is not logged in: {answer.error_message}")

    def answers(self) -> bool:
        """Whether the broker serves it, rather than closing it without an answer."""
        try:
            self.ask(ListGroupsRequest(states_filter=[]), 4)
        except OSError:
            return False
        return True

    def _received(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return parts
