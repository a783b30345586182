"""PLAIN: one message, one answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.principal import Principal
from moldau.security.sasl.jaas import parse_jaas
from moldau.security.sasl.mechanism import Authenticated, Failed, LoginFailed
from moldau.security.sasl.plain import INVALID, OTHER_IDENTITY, PlainClient, PlainServer, PlainUsers

USERS = PlainUsers({"alice": "secret", "käthe": "pä55", "": "nothing"})


def test_a_user_logs_in_with_its_password() -> None:
    for name, password in (("alice", "secret"), ("käthe", "pä55")):
        client = PlainClient(name, password)
        done = PlainServer(USERS).step(client.first())
        assert done == Authenticated(b"", Principal("User", name))
        assert client.answer(b"") is None


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"\0alice\0Secret", INVALID),
        (b"\0mallory\0secret", INVALID),
        (b"alice\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0nothing", "Authentication failed: username not specified"),
        (b"bob\0alice\0secret", OTHER_IDENTITY),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0\xff", "Invalid SASL/PLAIN response: it is not valid UTF-8"),
    ],
)
def test_refusals(message: bytes, error: str) -> None:
    failed = PlainServer(USERS).step(message)
    assert isinstance(failed, Failed)
    assert failed.message == error
    assert "secret" not in failed.reason


def test_an_authorization_id_may_repeat_the_user_alone() -> None:
    """CVE-2017-12610: no client acts as another user by naming it."""
    assert isinstance(PlainServer(USERS).step(b"alice\0alice\0secret"), Authenticated)
    assert isinstance(PlainServer(USERS).step(b"Alice\0alice\0secret"), Failed)


@given(st.binary(max_size=200))
def test_hostile_bytes_give_a_refusal(message: bytes) -> None:
    assert isinstance(PlainServer(USERS).step(message), Failed)


def test_users_come_from_the_login_module_and_show_nowhere() -> None:
    text = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="p1"'
        ' user_broker="p1" user_alice="a=;b" ;'
    )
    module = parse_jaas(text, "PLAIN")
    users = PlainUsers.of_login_module(module)
    assert users.has("alice", "a=;b") and users.has("broker", "p1") and not users.has("username", "broker")
    assert "p1" not in f"{module!r}{users!r}"


def test_a_server_that_goes_on_is_refused() -> None:
    with pytest.raises(LoginFailed):
        PlainClient("alice", "secret").answer(b"more")
