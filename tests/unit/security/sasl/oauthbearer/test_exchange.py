"""OAUTHBEARER: tokens that are accepted and refused, the exchange, and where keys and tokens come from."""

from __future__ import annotations

import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.principal import Principal
from moldau.security.sasl.mechanism import Authenticated, Challenge, Failed, LoginFailed, NeedsLookup, Step
from moldau.security.sasl.oauthbearer.exchange import (
    AllowedUrls,
    BearerClient,
    BearerServer,
    MalformedBearer,
    UrlNotAllowed,
    bearer_message,
    parse_bearer,
    token_of_response,
    token_request,
)
from moldau.security.sasl.oauthbearer.keys import InvalidKeys, KeySet, parse_key_set
from moldau.security.sasl.oauthbearer.token import InvalidToken, TokenRules, accept_token
from tests.support.identity_provider import Claims, IdentityProvider, text, unsigned

NOW_MS = 1_800_000_000_000
NOW = NOW_MS // 1000
PROVIDER = IdentityProvider()
KEYS = parse_key_set(PROVIDER.key_set())
RULES = TokenRules(issuer="https://id", audiences=frozenset({"kafka"}))
CLAIMS: Claims = {"iss": "https://id", "aud": ["kafka", "x"], "sub": "alice", "exp": NOW + 60, "scope": "a b"}


def accepted(claims: Claims, rules: TokenRules = RULES) -> str:
    return accept_token(PROVIDER.token(claims), rules, KEYS, NOW_MS).subject


@pytest.mark.parametrize(
    ("algorithm", "key_id"), [("RS256", "r"), ("PS256", "r"), ("ES256", "e"), ("ES256", None), ("RS256", None)]
)
def test_a_signed_token_is_accepted(algorithm: str, key_id: str | None) -> None:
    token = accept_token(PROVIDER.token(CLAIMS, algorithm, key_id), RULES, KEYS, NOW_MS)
    assert (token.subject, token.expires_at_ms, token.scopes) == ("alice", (NOW + 60) * 1000, frozenset({"a", "b"}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW - 30}, "has expired"),
        ({"exp": None}, "when it expires"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": 1 << 60}, "exp is not a time"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iat": NOW + 31}, "not valid yet"),
        ({"exp": NOW + 1, "nbf": NOW + 20}, "expires before"),
        ({"iss": "https://other"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": {"kafka": 1}}, "another audience"),
        ({"sub": ""}, "no subject"),
        ({"sub": 7}, "no subject"),
        ({"sub": None}, "no subject"),
    ],
)
def test_claims_that_are_refused(changes: Claims, reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        accepted({**CLAIMS, **changes})


def test_claims_within_the_skew_and_of_other_names() -> None:
    assert accepted({**CLAIMS, "exp": NOW - 29.5, "nbf": NOW - 60}) == "alice"
    assert accepted({**CLAIMS, "nbf": NOW + 30}) == "alice"
    named = RULES._replace(subject_claim="client", scope_claim="scp", scopes=frozenset({"w"}))
    assert accepted({**CLAIMS, "client": "app", "scp": ["r", "w"]}, named) == "app"
    with pytest.raises(InvalidToken, match="lacks a scope"):
        accepted({**CLAIMS, "client": "app", "scp": "r"}, named)
    assert accepted({"sub": "x", "exp": NOW + 1}, TokenRules()) == "x"


def test_an_algorithm_is_never_what_the_token_makes_of_it() -> None:
    public = PROVIDER.key_set()
    signed = unsigned({"alg": "HS256", "kid": "r"}, CLAIMS)
    forged = {
        "none": unsigned({"alg": "none"}, CLAIMS) + ".",
        "None": unsigned({"alg": "None"}, CLAIMS) + ".",
        "secret": f"{signed}.{text(hmac.digest(b'secret', signed.encode(), 'sha256'))}",
        "public key as secret": f"{signed}.{text(hmac.digest(public, signed.encode(), 'sha256'))}",
        "other type of key": PROVIDER.token(CLAIMS, "ES256", "r"),
        "stripped": PROVIDER.token(CLAIMS).rpartition(".")[0] + ".",
        "changed": PROVIDER.token(CLAIMS)[:-6] + "AAAAAA",
        "critical": f"{unsigned({'alg': 'RS256', 'crit': ['b64']}, CLAIMS)}.AA",
        "twice": text(b'{"alg":"RS256","alg":"none"}') + "." + text(b"{}") + ".",
        "two parts": "a.b",
        "too large": "a" * 70_000,
        "no JSON": "AAAA.AAAA.AAAA",
        "deep": text(b"[" * 40_000) + ".AA.AA",
    }
    for name, token in forged.items():
        with pytest.raises(InvalidToken):
            accept_token(token, RULES, KEYS, NOW_MS)
            pytest.fail(name)
    with pytest.raises(InvalidToken, match="not allowed"):
        accept_token(PROVIDER.token(CLAIMS), RULES._replace(algorithms=frozenset({"ES256"})), KEYS, NOW_MS)


def test_a_key_verifies_what_it_is_for() -> None:
    for changes in ({"use": "enc"}, {"alg": "RS512"}, {"alg": "HS256"}, {"n": "AQAB"}, {"n": 7}, {"kid": "other"}):
        keys = parse_key_set(PROVIDER.key_set(**changes))
        with pytest.raises(InvalidToken):
            accept_token(PROVIDER.token(CLAIMS), RULES, keys, NOW_MS)
    for broken in (b"", b"[]", b'{"keys": 1}', b"x" * (1 << 21), json.dumps({"keys": [{}] * 300}).encode()):
        with pytest.raises(InvalidKeys):
            parse_key_set(broken)


def test_unsecured_tokens_are_for_development_alone() -> None:
    token = unsigned({"alg": "none"}, {"sub": "dev", "exp": NOW + 1}) + "."
    development = TokenRules(takes_unsecured=True)
    assert accept_token(token, development, KeySet(), NOW_MS).subject == "dev"
    with pytest.raises(InvalidToken):
        accept_token(token + "AA", development, KeySet(), NOW_MS)


def server(keys: KeySet = KEYS) -> BearerServer:
    return BearerServer(RULES, keys, lambda: NOW_MS)


def test_a_client_logs_in() -> None:
    client = BearerClient(PROVIDER.token(CLAIMS), {"tenant": "blue"})
    done = server().step(client.first())
    assert done == Authenticated(b"", Principal("User", "alice"), (NOW + 60) * 1000)
    assert client.answer(b"") is None


def test_a_refused_token_is_told_and_the_exchange_ends() -> None:
    one = server()
    told = one.step(bearer_message(PROVIDER.token({**CLAIMS, "exp": 1}), {}))
    assert told == Challenge(b'{"status":"invalid_token"}')
    with pytest.raises(LoginFailed):
        BearerClient("x").answer(told.message)
    ended = one.step(b"\x01")
    assert isinstance(ended, Failed) and ended.reason == "the token has expired"


def test_an_unknown_key_is_looked_up_once() -> None:
    def looked_up(keys: KeySet) -> Step:
        one = server(KeySet())
        assert isinstance(one.step(bearer_message(PROVIDER.token(CLAIMS), {})), NeedsLookup)
        return one.on_lookup_result(keys)

    assert isinstance(looked_up(KEYS), Authenticated)
    assert isinstance(looked_up(KeySet()), Challenge)


def test_an_authorization_id_is_that_of_the_token() -> None:
    message = bearer_message(PROVIDER.token(CLAIMS), {}).decode()
    assert isinstance(server().step(message.replace("n,,", "n,a=alice,").encode()), Authenticated)
    assert isinstance(server().step(message.replace("n,,", "n,a=bob,").encode()), Failed)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01auth=Bearer x\x01",
        b"p=tls,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01a b=c\x01\x01",
        b"\xff",
    ],
)
def test_messages_of_another_form(message: bytes) -> None:
    with pytest.raises(MalformedBearer):
        parse_bearer(message)
    assert isinstance(server().step(message), Failed)


@given(st.binary(max_size=80) | st.text("n,\x01auth=Ber x.", max_size=60).map(str.encode))
def test_hostile_bytes_never_log_in(message: bytes) -> None:
    assert isinstance(server().step(message), Failed | Challenge)


@given(st.text(".AaeyJ0-_{", max_size=60))
def test_hostile_tokens_are_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        accept_token(token, RULES, KEYS, NOW_MS)


def test_extensions_that_cannot_be_sent() -> None:
    for name, value in (("auth", "x"), ("a b", "x"), ("a", "x\x01auth=y"), ("a", "")):
        with pytest.raises(ValueError):
            BearerClient("t", {name: value})


def test_client_credentials_go_to_an_allowed_url_alone() -> None:
    """CVE-2025-27817: what is not on the list is neither read nor reached."""
    allowed = AllowedUrls(["https://id/token", " https://id/keys ", "gopher://x"])
    request = token_request("https://id/token", "a b", "s:&", "read", allowed)
    assert request.body == b"grant_type=client_credentials&scope=read"
    assert request.headers["Authorization"] == "Basic YStiOnMlM0ElMjY="
    assert repr(request) == "TokenRequest to https://id/token"
    assert allowed.check("https://id/keys") == "https://id/keys"
    for url in ("file:///etc/passwd", "https://id/token/../x", "https://id/token?", "gopher://x"):
        with pytest.raises(UrlNotAllowed):
            token_request(url, "a", "b", None, allowed)


def test_the_response_of_a_token_endpoint() -> None:
    assert token_of_response(b'{"access_token":"abc","token_type":"Bearer"}') == "abc"
    for body in (b"", b"[]", b'{"access_token":7}', b'{"access_token":"a\\u0001b"}', b"x" * (1 << 21)):
        with pytest.raises(LoginFailed):
            token_of_response(body)
