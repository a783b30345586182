"""The server's side of SCRAM.

    client first ──▶ server first (salt, iterations) ──▶ client final (proof) ──▶ server final (signature)

For an unknown user the salt is derived from its name and a secret of the cluster. The exchange then fails at the proof,
as for a wrong password: messages, computing time and error are the same.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hmac import compare_digest
from typing import Final, NamedTuple, Protocol

from security.principal import USER, Principal
from security.sasl.mechanism import Authenticated, Challenge, Failed, Mechanism, Step
from security.sasl.scram.credential import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    digest,
    exclusive_or,
    keyed,
    salt_of_number,
)
from security.sasl.scram.messages import (
    TOKEN_EXTENSION,
    ClientFirst,
    MalformedScram,
    base64_text,
    parse_client_final,
    parse_client_first,
)

NONCE_SIZE: Final = 18
"""Random bytes in the server's nonce, which is sent in base64: all its characters are allowed there."""


class TokenLogin(NamedTuple):
    """The credentials and the principal of a delegation token's bearer."""

    credential: ScramCredential
    owner: Principal
    expires_at_ms: int


class ScramUsers(Protocol):
    """Looks up the current SCRAM credentials of users and delegation tokens."""

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """The credential of a user; None where it has none of this mechanism."""

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """The login of a delegation token; None where it does not exist or has expired."""


class ScramServer(Mechanism):
    """One exchange with one client."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        users: ScramUsers,
        random_bytes: Callable[[int], bytes],
        secret: bytes,
    ) -> None:
        """`secret`: the salts of unknown users are derived from it.

        It must be the same on all nodes and never change, because the salts of known users do not change either.
        """
        self._mechanism = mechanism
        self._users = users
        self._random_bytes = random_bytes
        self._secret = secret
        self._first: ClientFirst | None = None
        self._server_first = ""
        self._nonce = ""
        self._credential: ScramCredential | None = None
        self._token: TokenLogin | None = None
        self._is_over = False

    def step(self, message: bytes) -> Step:
        if self._is_over:
            return self._failed("the client goes on after the end of the exchange")
        try:
            return self._begin(message) if self._first is None else self._finish(self._first, message)
        except MalformedScram as error:
            return self._failed(str(error))

    def _begin(self, message: bytes) -> Step:
        first = parse_client_first(message)
        if first.authorization_id not in ("", first.user):
            return self._failed(f"user {first.user!r} asked to act as {first.authorization_id!r}")
        if first.extensions.get(TOKEN_EXTENSION, "").lower() == "true":
            self._token = self._users.token(self._mechanism, first.user)
            self._credential = None if self._token is None else self._token.credential
        else:
            self._credential = self._users.credential(self._mechanism, first.user)
        known = self._credential
        salt = self._fake_salt(first.user) if known is None else known.salt
        iterations = ITERATIONS_MIN if known is None else known.iterations
        self._first = first
        self._nonce = first.nonce + base64_text(self._random_bytes(NONCE_SIZE))
        self._server_first = f"r={self._nonce},s={base64_text(salt)},i={iterations}"
        return Challenge(self._server_first.encode())

    def _finish(self, first: ClientFirst, message: bytes) -> Step:
        final = parse_client_final(message)
        if not compare_digest(final.nonce.encode(), self._nonce.encode()):
            return self._failed(f"user {first.user!r} answered with another nonce")
        if final.channel_binding != first.gs2_header.encode():
            return self._failed(f"user {first.user!r} answered with another header")
        signed = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        credential = self._credential or self._fake_credential()
        if not self._is_proof(credential, signed, final.proof) or self._credential is None:
            return self._failed(f"user {first.user!r} is unknown or its password is wrong")
        self._is_over = True
        signature = keyed(self._mechanism, credential.server_key, signed)
        reply = f"v={base64_text(signature)}".encode()
        if self._token is not None:
            owner = self._token.owner._replace(is_token_authenticated=True)
            return Authenticated(reply, owner, self._token.expires_at_ms)
        return Authenticated(reply, Principal(USER, first.user))

    def _is_proof(self, credential: ScramCredential, signed: bytes, proof: bytes) -> bool:
        if len(proof) != self._mechanism.key_size:
            return False
        key = exclusive_or(proof, keyed(self._mechanism, credential.stored_key, signed))
        return compare_digest(digest(self._mechanism, key), credential.stored_key)

    def _fake_salt(self, user: str) -> bytes:
        named = f"{self._mechanism.mechanism_name}\0{user}".encode()
        return salt_of_number(int.from_bytes(hmac.digest(self._secret, named, "sha256"), "big"))

    def _fake_credential(self) -> ScramCredential:
        """A credential that no proof satisfies."""
        key = self._random_bytes(self._mechanism.key_size)
        return ScramCredential(b"", key, key, ITERATIONS_MIN)

    def _failed(self, reason: str) -> Failed:
        self._is_over = True
        return Failed(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            + self._mechanism.mechanism_name,
            reason,
        )
