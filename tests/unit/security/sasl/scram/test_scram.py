"""SCRAM: both sides against each other, the example of RFC 7677, and what each side refuses."""

from __future__ import annotations

from base64 import b64decode
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from security.principal import Principal
from security.sasl.client_mechanism import LoginFailed
from security.sasl.mechanism import Authenticated, Challenge, Failed, Step
from security.sasl.scram.client import ScramClient, ScramLogin
from security.sasl.scram.credential import (
    ScramCredential,
    ScramMechanism,
    credential_of_password,
    new_salt,
)
from security.sasl.scram.messages import MalformedScram, escaped, parse_server_first, unescaped
from security.sasl.scram.server import ScramServer, TokenLogin

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SECRET = b"of the cluster"
random = Random(1)


class Users:
    """Two users, and a delegation token."""

    def __init__(self) -> None:
        self.passwords = {"alice": "wonder=land,", "a=b,c": "x"}
        self.credentials = {
            (mechanism, user): credential_of_password(mechanism, password, new_salt(random.randbytes))
            for mechanism in (SHA_256, SHA_512)
            for user, password in self.passwords.items()
        }

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self.credentials.get((mechanism, user))

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        if token_id != "token-1":
            return None
        return TokenLogin(credential_of_password(mechanism, "hmac", b"salt"), Principal("User", "owner"), 99)


USERS = Users()


def server(mechanism: ScramMechanism = SHA_256) -> ScramServer:
    return ScramServer(mechanism, USERS, random.randbytes, SECRET)


def client(user: str, password: str, mechanism: ScramMechanism = SHA_256, extensions: str = "") -> ScramClient:
    return ScramClient(ScramLogin(mechanism, user, password), random.randbytes, extensions)


def talk(one: ScramClient, other: ScramServer) -> Step:
    """The server's last step; the client has checked its last message."""
    message: bytes | None = one.first()
    while message is not None:
        step = other.step(message)
        if not isinstance(step, Challenge | Authenticated):
            return step
        message = one.answer(step.message)
    return step


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("user", ["alice", "a=b,c"])
def test_a_user_logs_in(mechanism: ScramMechanism, user: str) -> None:
    done = talk(client(user, USERS.passwords[user], mechanism), server(mechanism))
    assert isinstance(done, Authenticated)
    assert done.principal == Principal("User", user) and done.expires_at_ms is None


def test_the_example_of_rfc_7677() -> None:
    one = ScramClient(ScramLogin(SHA_256, "user", "pencil"), lambda size: b64decode("rOprNGfwEbeRWgbNEkqO"))
    assert one.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = one.answer(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert one.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_an_unknown_user_and_a_wrong_password_look_alike() -> None:
    wrong, unknown = talk(client("alice", "x"), server()), talk(client("mallory", "x"), server())
    assert isinstance(wrong, Failed) and isinstance(unknown, Failed)
    assert wrong.message == unknown.message
    firsts = [server().step(client(user, "x").first()) for user in ("alice", "mallory", "mallory", "malory")]
    messages = [parse_server_first(step.message) for step in firsts if isinstance(step, Challenge)]
    assert {each.iterations for each in messages} == {4096}
    assert messages[1].salt == messages[2].salt != messages[3].salt
    assert all(24 <= len(each.salt) <= 26 and each.salt.isalnum() for each in messages)


def test_a_delegation_token_stands_for_its_owner() -> None:
    done = talk(client("token-1", "hmac", extensions=",tokenauth=true"), server())
    assert isinstance(done, Authenticated)
    assert done.principal == Principal("User", "owner", is_token_authenticated=True) and done.expires_at_ms == 99
    assert isinstance(talk(client("token-1", "hmac"), server()), Failed)
    assert isinstance(talk(client("alice", USERS.passwords["alice"], extensions=",tokenauth=true"), server()), Failed)


def challenge_for(first: bytes) -> str | None:
    step = server().step(first)
    return step.message.decode() if isinstance(step, Challenge) else None


@pytest.mark.parametrize(
    "first",
    [
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice",
        b"n,,r=abc,n=alice",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=alice,r=a b",
        b"n,,n=alice,n=alice,r=abc",
        b"n,,n=alice,r=abc,=x",
        b"n,,n=al\0ice,r=abc",
        b"x,,n=alice,r=abc",
        b"n=alice,r=abc",
        b"n,,n=alice,r=" + bytes(10_000),
        b"",
    ],
)
def test_a_first_message_that_is_refused(first: bytes) -> None:
    assert challenge_for(first) is None


@pytest.mark.parametrize("first", [b"n,,n=alice,r=abc", b"y,,n=alice,r=abc", b"n,a=alice,n=alice,r=abc,x=y"])
def test_a_first_message_that_is_taken(first: bytes) -> None:
    assert challenge_for(first) is not None


def test_the_final_nonce_is_checked() -> None:
    """CVE-2024-56128: the nonce of the final message is that of this exchange, not one that the client made."""
    for change in (("r=", "r=x"), ("biws", "eSws")):
        one, other = client("alice", USERS.passwords["alice"]), server()
        step = other.step(one.first())
        assert isinstance(step, Challenge)
        final = one.answer(step.message)
        assert final is not None
        assert isinstance(other.step(final.replace(change[0].encode(), change[1].encode(), 1)), Failed)
        assert isinstance(other.step(final), Failed), "the exchange is over"


def test_a_server_is_checked_too() -> None:
    for forge in (
        lambda text: text.replace("r=", "r=x", 1),
        lambda text: text.replace("i=4096", "i=4095"),
        lambda text: text.replace("i=4096", "i=999999999"),
        lambda text: "e=other-error",
    ):
        one = client("alice", "x")
        step = server().step(one.first())
        assert isinstance(step, Challenge)
        with pytest.raises(LoginFailed):
            one.answer(forge(step.message.decode()).encode())
    one = client("alice", "x")
    step = server().step(one.first())
    assert isinstance(step, Challenge)
    one.answer(step.message)
    with pytest.raises(LoginFailed, match="does not know the password"):
        one.answer(b"v=AAAA")
    with pytest.raises(LoginFailed, match="goes on"):
        one.answer(b"v=AAAA")


@given(st.lists(st.binary(max_size=60) | st.text("n,ray=pc:AB=", max_size=40).map(str.encode), max_size=3))
def test_hostile_bytes_never_log_in(messages: list[bytes]) -> None:
    other = server()
    for message in messages:
        assert isinstance(other.step(message), Challenge | Failed)


@given(st.text(max_size=20))
def test_names_are_escaped_and_read_back(name: str) -> None:
    assert unescaped(escaped(name)) == name
    assert "," not in escaped(name)


@pytest.mark.parametrize("name", ["=", "a=2", "=2c", "=3E"])
def test_a_name_with_another_escape_is_refused(name: str) -> None:
    with pytest.raises(MalformedScram):
        unescaped(name)


def test_no_secret_shows() -> None:
    credential = credential_of_password(SHA_256, "secret", b"salt")
    assert repr(credential) == "ScramCredential of 4096 iterations"
    assert "secret" not in repr(ScramLogin(SHA_256, "alice", "secret"))
