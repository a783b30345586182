"""The login of this node to another: the order of its messages, and every way in which it fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from moldau.broker.network.peer_security import PeerLogin, Versions
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.word_mechanism import WordClient, word

VERSIONS: Versions = {0: (0, 9)}


class Channel:
    """Keeps what is sent, until the test answers it."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self._reply: Callable[[object], None] | None = None
        self.ended: list[object] = []

    def send_login(self, request: object, reply: Callable[[object], None], version: int) -> None:
        self.sent.append(request)
        self._reply = reply

    def logged_in(self, versions: Versions, session_ms: int) -> None:
        self.ended.append((versions, session_ms))

    def login_failed(self, reason: str) -> None:
        self.ended.append(reason)

    def answer(self, response: object) -> None:
        assert self._reply is not None
        self._reply(response)


def begun() -> tuple[Channel, PeerLogin]:
    channel = Channel()
    login = PeerLogin(channel, lambda: WordClient("broker-2"), VERSIONS)
    login.begin()
    return channel, login


def test_a_login_is_a_handshake_and_the_messages_of_the_mechanism() -> None:
    channel, login = begun()
    channel.answer(SaslHandshakeResponse(mechanisms=["WORD"]))
    channel.answer(SaslAuthenticateResponse(auth_bytes=b"who?"))
    channel.answer(SaslAuthenticateResponse(auth_bytes=b"welcome", session_lifetime_ms=5000))
    messages = [SaslAuthenticateRequest(auth_bytes=each) for each in (b"hello", word("broker-2"))]
    assert channel.sent == [SaslHandshakeRequest(mechanism="WORD"), *messages]
    assert channel.ended == [(VERSIONS, 5000)]
    login.begin()  # before the session ends
    assert channel.sent[3:] == [SaslHandshakeRequest(mechanism="WORD")]


@pytest.mark.parametrize(
    ("responses", "words"),
    [
        ([SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN"])], "refuses the mechanism WORD; it offers PLAIN"),
        (
            [SaslHandshakeResponse(), SaslAuthenticateResponse(error_code=58, error_message="no such user")],
            "no such user",
        ),
        ([SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"?")], "the server says"),
    ],
)
def test_a_login_that_fails_says_why(responses: list[object], words: str) -> None:
    channel, _ = begun()
    for response in responses:
        channel.answer(response)
    (reason,) = channel.ended
    assert isinstance(reason, str) and words in reason


def test_a_connection_that_is_lost_ends_the_login_without_a_word() -> None:
    channel, _ = begun()
    channel.answer(object())
    assert channel.ended == [] and len(channel.sent) == 1
