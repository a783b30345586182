"""Parses JSON Web Tokens (RFC 7519) with limits, verifies their signatures, and checks their claims.

header.claims.signature      each in base64 for URLs; the header names the algorithm and the key
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Final, NamedTuple

from moldau.security.sasl.oauthbearer.keys import ALGORITHMS, KeySet, base64url

SIZE_MAX: Final = 64 * 1024
"""The maximum length (characters) of a token."""
NONE: Final = "none"


class InvalidToken(ValueError):
    """Raised if a token is refused. The message is for the log of the broker and has no part of the token's
    signature."""


class UnknownKey(InvalidToken):
    """Raised if no key of the key set can verify the token. The provider may have a new key."""


class TokenRules(NamedTuple):
    """The rules by which a listener accepts tokens."""

    issuer: str | None = None
    """`sasl.oauthbearer.expected.issuer`; None if any issuer is accepted."""
    audiences: frozenset[str] = frozenset()
    """`sasl.oauthbearer.expected.audience`: the token must name one of these audiences. If the set is empty, the
    audience is not checked."""
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    scopes: frozenset[str] = frozenset()
    """The scopes that the token must have."""
    clock_skew_ms: int = 30_000
    algorithms: frozenset[str] = ALGORITHMS
    takes_unsecured: bool = False
    """Whether tokens without a signature are accepted, and signed tokens refused: for development only."""


class ParsedToken(NamedTuple):
    algorithm: str
    key_id: str | None
    claims: dict[str, object]
    signed: bytes
    signature: bytes


class AcceptedToken(NamedTuple):
    """The subject, expiry and scopes of a token that was accepted."""

    subject: str
    expires_at_ms: int
    scopes: frozenset[str]


def accept_token(token: str, rules: TokenRules, keys: KeySet, now_ms: int) -> AcceptedToken:
    """Verify the signature of a token and check its claims. Returns its subject, expiry and scopes. Raises
    `InvalidToken`."""
    parsed = parse_token(token)
    verify_signature(parsed, rules, keys)
    return check_claims(parsed.claims, rules, now_ms)


def expiry_ms(token: str) -> int:
    """The expiry (ms since the epoch) of a token with which this node logs in. The signature is not verified. Raises
    `InvalidToken` if the token has no expiry.
    """
    expires_ms = _time_ms(parse_token(token).claims, "exp")
    if expires_ms is None:
        raise InvalidToken("the token does not say when it expires")
    return expires_ms


def unsecured_token(subject: str, now_ms: int, life_ms: int) -> str:
    """Make a token without a signature that expires `life_ms` after `now_ms`; for development only."""
    claims = {"sub": subject, "iat": now_ms // 1000, "exp": (now_ms + life_ms) // 1000}
    parts = (json.dumps(each, separators=(",", ":")).encode() for each in ({"alg": NONE}, claims))
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def parse_token(token: str) -> ParsedToken:
    """Decode a token without verifying it. Raises `InvalidToken`."""
    if len(token) > SIZE_MAX:
        raise InvalidToken(f"the token has more than {SIZE_MAX} characters")
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken(f"the token has {len(parts)} parts in place of 3")
    header, claims = _json(parts[0], "header"), _json(parts[1], "claims")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not (key_id is None or isinstance(key_id, str)):
        raise InvalidToken("the header names its algorithm and its key by texts")
    if "crit" in header:
        raise InvalidToken("the header asks for an extension that is not known")
    try:
        signature = base64url(parts[2])
    except ValueError:
        raise InvalidToken("the signature is not base64") from None
    return ParsedToken(algorithm, key_id, claims, f"{parts[0]}.{parts[1]}".encode(), signature)


def verify_signature(token: ParsedToken, rules: TokenRules, keys: KeySet) -> None:
    """Verify the signature of a token. Raises `InvalidToken`, or `UnknownKey`."""
    if rules.takes_unsecured:
        if token.algorithm != NONE or token.signature:
            raise InvalidToken("the token is signed, and this listener takes unsecured ones")
        return
    if token.algorithm not in rules.algorithms & ALGORITHMS:
        raise InvalidToken(f"the algorithm {token.algorithm[:20]!r} is not allowed")
    key = keys.find(token.key_id, token.algorithm)
    if key is None:
        raise UnknownKey("the key of the token is not known")
    if not key.verify(token.algorithm, token.signature, token.signed):
        raise InvalidToken("the signature is not that of the token")


def check_claims(claims: dict[str, object], rules: TokenRules, now_ms: int) -> AcceptedToken:
    """Check the claims of a token. Raises `InvalidToken`."""
    expires_ms = _time_ms(claims, "exp")
    if expires_ms is None:
        raise InvalidToken("the token does not say when it expires")
    if now_ms - rules.clock_skew_ms >= expires_ms:
        raise InvalidToken("the token has expired")
    for name in ("nbf", "iat"):
        begins_ms = _time_ms(claims, name)
        if begins_ms is not None and begins_ms - rules.clock_skew_ms > now_ms:
            raise InvalidToken(f"the token is not valid yet by its claim {name}")
        if begins_ms is not None and begins_ms > expires_ms:
            raise InvalidToken(f"the token expires before its claim {name}")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken("the token is from another issuer")
    if rules.audiences and rules.audiences.isdisjoint(_texts(claims, "aud")):
        raise InvalidToken("the token is for another audience")
    scopes = frozenset(_texts(claims, rules.scope_claim, separator=" "))
    if not rules.scopes <= scopes:
        raise InvalidToken("the token lacks a scope")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"the token has no subject in its claim {rules.subject_claim}")
    return AcceptedToken(subject.strip(), expires_ms, scopes)


def _json(part: str, what: str) -> dict[str, object]:
    try:
        value = json.loads(base64url(part), object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError):
        raise InvalidToken(f"the {what} of the token are not JSON in base64") from None
    if not isinstance(value, dict):
        raise InvalidToken(f"the {what} of the token are not a JSON object")
    return value


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make a dictionary of the pairs of a JSON object. Raises ValueError if a name is repeated, because two readers
    might use different values.
    """
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("a name is there twice")
    return names


def _time_ms(claims: dict[str, object], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise InvalidToken(f"the claim {name} is not a time")
    return int(value * 1000)


def _texts(claims: dict[str, object], name: str, separator: str | None = None) -> list[str]:
    """The values of a claim that is a text or a list of texts; empty for any other claim."""
    value = claims.get(name)
    if isinstance(value, str):
        return [value] if separator is None else value.split(separator)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
