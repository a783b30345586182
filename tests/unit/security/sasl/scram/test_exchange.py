"""SCRAM: both sides against each other, the example of RFC 7677, and what each side refuses."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.delegation_token import credential_of_token
from moldau.security.principal import Principal
from moldau.security.sasl.mechanism import Authenticated, Challenge, Failed, LoginFailed, Step
from moldau.security.sasl.scram.credential import (
    COMMON_FORM,
    ScramCredential,
    ScramForm,
    ScramMechanism,
    credential_of_password,
    form_of,
    new_salt,
)
from moldau.security.sasl.scram.exchange import (
    DRAW_BITS,
    MalformedScram,
    ScramClient,
    ScramLogin,
    ScramServer,
    TokenCredential,
    escaped_name,
    parse_server_first,
    unescaped_name,
)

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
        self.forms = [COMMON_FORM]

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self.credentials.get((mechanism, user))

    def drawn_form(self, mechanism: ScramMechanism, draw: int) -> ScramForm:
        return self.forms[draw * len(self.forms) >> DRAW_BITS]

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        if token_id != "token-1":
            return None
        return TokenCredential(credential_of_password(mechanism, "hmac", b"salt"), Principal("User", "owner"), 99)


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


def shown(users: Users, user: str, extensions: str = "") -> tuple[bytes, int]:
    """Salt and iterations in the answer to the first message."""
    other = ScramServer(SHA_256, users, random.randbytes, SECRET)
    step = other.step(client(user, "x", extensions=extensions).first())
    assert isinstance(step, Challenge)
    first = parse_server_first(step.message)
    return first.salt, first.iterations


def test_unknown_users_are_shown_the_forms_of_credentials_each_always_its_own() -> None:
    users = Users()
    users.forms = [ScramForm(4096, 0), ScramForm(8192, 0), ScramForm(16384, 64), ScramForm(8192, 300)]
    names = [f"unknown-{number}" for number in range(400)]
    answers = {name: shown(users, name) for name in names}
    assert answers == {name: shown(users, name) for name in names}
    assert len({salt for salt, _ in answers.values()}) == len(names)
    forms = [form_of(ScramCredential(salt, b"", b"", iterations)) for salt, iterations in answers.values()]
    assert all(60 < forms.count(form) < 140 for form in users.forms)
    assert len(forms) == sum(forms.count(form) for form in users.forms)


def test_an_unknown_token_is_shown_what_a_known_one_is() -> None:
    salt, iterations = shown(USERS, "no-token", ",tokenauth=true")
    known = credential_of_token(SHA_256, "token", b"key")
    assert (len(salt), iterations) == (len(known.salt), known.iterations)
    assert shown(USERS, "no-token", ",tokenauth=true") == (salt, iterations)


def test_the_work_is_the_same_for_known_and_unknown_users(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for module, name in ((hmac, "digest"), (hashlib, "new"), (hashlib, "shake_256")):
        real = getattr(module, name)

        def counted(*arguments: object, name: str = name, real: Callable[..., object] = real) -> object:
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(module, name, counted)

    def work(user: str) -> list[str]:
        one = client(user, "wrong")
        other = server()
        calls.clear()
        step = other.step(one.first())
        assert isinstance(step, Challenge)
        first = list(calls)
        final = one.answer(step.message)
        assert final is not None
        calls.clear()
        assert isinstance(other.step(final), Failed)
        return [*first, "proof", *calls]

    assert work("alice") == work("mallory")


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
    assert unescaped_name(escaped_name(name)) == name
    assert "," not in escaped_name(name)


@pytest.mark.parametrize("name", ["=", "a=2", "=2c", "=3E"])
def test_a_name_with_another_escape_is_refused(name: str) -> None:
    with pytest.raises(MalformedScram):
        unescaped_name(name)


def test_no_secret_shows() -> None:
    credential = credential_of_password(SHA_256, "secret", b"salt")
    assert repr(credential) == "ScramCredential of 4096 iterations"
    assert "secret" not in repr(ScramLogin(SHA_256, "alice", "secret"))
