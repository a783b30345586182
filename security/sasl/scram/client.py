"""The client's side of SCRAM: this node proves that it knows a password, and verifies that the server knows it too."""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from typing import Final

from moldau.security.sasl.client_mechanism import ClientMechanism, LoginFailed
from moldau.security.sasl.scram.credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    client_key,
    digest,
    exclusive_or,
    keyed,
    salted_password,
    server_key,
)
from moldau.security.sasl.scram.messages import (
    MalformedScram,
    base64_text,
    escaped,
    parse_server_final,
    parse_server_first,
)

NONCE_SIZE: Final = 18
_HEADER: Final = "n,,"


class ScramLogin:
    """A user and its password, for many exchanges.

    The keys, which take long to compute, are computed once for each salt.
    """

    __slots__ = ("_password", "_salted", "mechanism", "user")

    def __init__(self, mechanism: ScramMechanism, user: str, password: str) -> None:
        self.mechanism = mechanism
        self.user = user
        self._password = password.encode()
        self._salted: tuple[bytes, int, bytes] | None = None

    def salted(self, salt: bytes, iterations: int) -> bytes:
        known = self._salted
        if known is None or known[:2] != (salt, iterations):
            known = salt, iterations, salted_password(self.mechanism, self._password, salt, iterations)
            self._salted = known
        return known[2]

    def __repr__(self) -> str:
        return f"ScramLogin of {self.user}"


class ScramClient(ClientMechanism):
    """One exchange with one server."""

    def __init__(self, login: ScramLogin, random_bytes: Callable[[int], bytes], extensions: str = "") -> None:
        """`extensions`: extensions of the first message, such as `,tokenauth=true`."""
        self.name = login.mechanism.mechanism_name
        self._login = login
        self._nonce = base64_text(random_bytes(NONCE_SIZE))
        self._bare = f"n={escaped(login.user)},r={self._nonce}{extensions}"
        self._signature: bytes | None = None
        self._is_over = False

    def first(self) -> bytes:
        return (_HEADER + self._bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._is_over:
            raise LoginFailed("the server goes on after the end of the exchange")
        try:
            if self._signature is None:
                return self._proof(challenge)
            self._check(challenge, self._signature)
        except MalformedScram as error:
            raise LoginFailed(str(error)) from None
        return None

    def _proof(self, challenge: bytes) -> bytes:
        first = parse_server_first(challenge)
        if not first.nonce.startswith(self._nonce) or len(first.nonce) == len(self._nonce):
            raise LoginFailed("the server answered with another nonce")
        if not ITERATIONS_MIN <= first.iterations <= ITERATIONS_MAX:
            raise LoginFailed(
                f"the server asks for {first.iterations} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted"
            )
        mechanism = self._login.mechanism
        salted = self._login.salted(first.salt, first.iterations)
        key = client_key(mechanism, salted)
        final = f"c={base64_text(_HEADER.encode())},r={first.nonce}"
        signed = f"{self._bare},{bytes(challenge).decode()},{final}".encode()
        self._signature = keyed(mechanism, server_key(mechanism, salted), signed)
        proof = exclusive_or(key, keyed(mechanism, digest(mechanism, key), signed))
        return f"{final},p={base64_text(proof)}".encode()

    def _check(self, challenge: bytes, signature: bytes) -> None:
        self._is_over = True
        if not compare_digest(parse_server_final(challenge), signature):
            raise LoginFailed("the server does not know the password")
