"""The SASL exchange: what is allowed when, as Apache Kafka 4.3.1 was seen to answer it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from moldau.broker.network.authentication.exchange import (
    LATE_TOKEN,
    RENEWAL_MS_MIN,
    ExchangeState,
    HandshakeAccepted,
    IllegalRequest,
    LoginAccepted,
    LoginRefused,
    LookupNeeded,
    SaslExchange,
    ServerChallenge,
)
from moldau.protocol.errors import ErrorCode
from moldau.security.principal import Principal
from tests.support.word_mechanism import WordMechanism, word

ALICE = Principal("User", "alice")
NOW_MS, WALL_MS = 5_000, 1_000_000


def exchange(reauth_ms: int = 0, expires_at_ms: int | None = None) -> SaslExchange:
    def make() -> WordMechanism:
        return WordMechanism(expires_at_ms)

    return SaslExchange({"WORD": make, "OTHER": make}, {"WORD": reauth_ms, "OTHER": reauth_ms})


def authenticated(reauth_ms: int = 0, expires_at_ms: int | None = None) -> SaslExchange:
    made = exchange(reauth_ms, expires_at_ms)
    made.handshake("WORD", 1, NOW_MS)
    made.token(b"hello", WALL_MS)
    assert isinstance(made.token(word("alice"), WALL_MS), LoginAccepted)
    return made


def test_a_client_authenticates_in_some_messages() -> None:
    made = exchange()
    assert made.handshake("WORD", 1, NOW_MS) == HandshakeAccepted(("WORD", "OTHER"), False)
    assert made.token(b"hello", WALL_MS) == ServerChallenge(b"who?")
    assert made.token(word("alice"), WALL_MS) == LoginAccepted(b"welcome", ALICE, 0, False)
    assert (made.state, made.principal) == (ExchangeState.AUTHENTICATED, ALICE)


def test_version_0_of_the_handshake_announces_frames_without_a_header() -> None:
    made = exchange()
    assert made.handshake("WORD", 0, NOW_MS) == HandshakeAccepted(("WORD", "OTHER"), True)
    assert made.state is ExchangeState.RAW
    made.token(b"hello", WALL_MS)
    assert isinstance(made.token(word("alice"), WALL_MS), LoginAccepted)


def test_a_mechanism_that_is_not_offered_is_refused() -> None:
    made = exchange()
    refused = made.handshake("X" * 10_000, 1, NOW_MS)
    assert isinstance(refused, LoginRefused) and refused.error is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert len(refused.reason) < 200 and made.state is ExchangeState.FAILED


def test_a_wrong_word_ends_the_exchange_and_what_was_wrong_is_for_the_log() -> None:
    made = exchange()
    made.handshake("WORD", 1, NOW_MS)
    made.token(b"hello", WALL_MS)
    refused = made.token(b"mallory:no", WALL_MS)
    assert refused == LoginRefused(ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed", "the word is wrong")


@pytest.mark.parametrize(
    "go_on",
    [
        lambda made: made.token(b"hello", WALL_MS),
        lambda made: (made.handshake("WORD", 1, NOW_MS), made.handshake("WORD", 1, NOW_MS))[1],
        lambda made: (made.handshake("WORD", 0, NOW_MS), made.handshake("WORD", 1, NOW_MS))[1],
        lambda made: (made.handshake("NONE", 1, NOW_MS), made.handshake("WORD", 1, NOW_MS))[1],
    ],
)
def test_what_comes_out_of_order_before_the_end_ends_the_connection(go_on: Callable[[SaslExchange], object]) -> None:
    made = exchange()
    refused = go_on(made)
    assert isinstance(refused, LoginRefused) and refused.error is ErrorCode.ILLEGAL_SASL_STATE
    assert made.state is ExchangeState.FAILED


def test_what_comes_out_of_order_afterwards_changes_nothing() -> None:
    made = authenticated()
    assert made.token(b"hello", WALL_MS) == IllegalRequest(LATE_TOKEN)
    assert isinstance(made.handshake("WORD", 1, NOW_MS), IllegalRequest)  # no session has an end here
    assert made.state is ExchangeState.AUTHENTICATED


def test_a_session_ends_with_the_setting_or_with_the_credential() -> None:
    def session_ms(reauth_ms: int, expires_at_ms: int | None) -> int:
        made = exchange(reauth_ms, expires_at_ms)
        made.handshake("WORD", 1, NOW_MS)
        made.token(b"hello", WALL_MS)
        accepted = made.token(word("alice"), WALL_MS)
        assert isinstance(accepted, LoginAccepted)
        return accepted.session_ms

    assert session_ms(0, None) == 0
    assert session_ms(3000, None) == 3000
    assert session_ms(0, WALL_MS + 500) == session_ms(3000, WALL_MS + 500) == 500
    assert session_ms(300, WALL_MS + 500) == 300


def test_a_credential_that_has_ended_lets_no_client_in() -> None:
    made = exchange(0, WALL_MS)
    made.handshake("WORD", 1, NOW_MS)
    made.token(b"hello", WALL_MS)
    assert isinstance(made.token(word("alice"), WALL_MS), LoginRefused)


@pytest.mark.parametrize("has_expired", [False, True])
def test_a_client_authenticates_again_once_a_second(has_expired: bool) -> None:
    made = authenticated(3000)
    if has_expired:
        made.expire()
        assert isinstance(made.token(b"hello", WALL_MS), LoginRefused)
        made = authenticated(3000)
        made.expire()
    assert isinstance(made.handshake("WORD", 1, NOW_MS), HandshakeAccepted)
    made.token(b"hello", WALL_MS)
    assert made.token(word("alice"), WALL_MS) == LoginAccepted(b"welcome", ALICE, 3000, True)
    assert isinstance(made.handshake("WORD", 1, NOW_MS + RENEWAL_MS_MIN - 1), IllegalRequest)
    assert isinstance(made.handshake("WORD", 1, NOW_MS + RENEWAL_MS_MIN), HandshakeAccepted)


def test_a_session_that_expires_is_renewed_and_another_is_not() -> None:
    token = authenticated(0, WALL_MS + 5000)
    assert isinstance(token.handshake("WORD", 1, NOW_MS), HandshakeAccepted)
    token.token(b"hello", WALL_MS)
    assert token.token(word("alice"), WALL_MS) == LoginAccepted(b"welcome", ALICE, 5000, True)
    other = SaslExchange({"WORD": WordMechanism, "OTHER": WordMechanism}, {"WORD": 0, "OTHER": 3000})
    other.handshake("WORD", 1, NOW_MS)
    other.token(b"hello", WALL_MS)
    assert other.token(word("alice"), WALL_MS) == LoginAccepted(b"welcome", ALICE, 0, False)
    assert isinstance(other.handshake("WORD", 1, NOW_MS), IllegalRequest)


def test_neither_the_principal_nor_the_mechanism_may_change() -> None:
    made = authenticated(3000)
    made.handshake("WORD", 1, NOW_MS)
    made.token(b"hello", WALL_MS)
    refused = made.token(word("bob"), WALL_MS)
    assert isinstance(refused, LoginRefused)
    assert refused.message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert isinstance(authenticated(3000).handshake("OTHER", 1, NOW_MS), LoginRefused)


def test_a_mechanism_may_look_something_up() -> None:
    made = exchange()
    made.handshake("WORD", 1, NOW_MS)
    assert made.token(b"look", WALL_MS) == LookupNeeded("words")
    assert made.found("alice", WALL_MS) == LoginAccepted(b"welcome", ALICE, 0, False)
