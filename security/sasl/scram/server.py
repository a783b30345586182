"""The server's side of SCRAM.

    client first ──▶ server first (salt, iterations) ──▶ client final (proof) ──▶ server final (signature)

A client that cannot log in does not learn whether the user exists:

    first message   for an unknown user, salt and iterations are derived from its name and a secret of the cluster. They
                    have the form of a credential: iterations, and size and alphabet of the salt, are as frequent among
                    unknown users as among the users of the mechanism, and stay the same while the credentials do. Where
                    credentials of other forms come or go, a small share of the unknown users gets another form.
    proof           is computed for a credential that no proof satisfies; the error is that for a wrong password
    work            is the same for both: what an unknown user needs is computed for each user

The same holds for the ids of delegation tokens, whose salts are random bytes, except for time: the first login with a
token on a node takes some milliseconds longer, in which its credential is derived. These ids cannot be guessed.

DIVERGES: Apache Kafka refuses an unknown user at its first message, so that a client can find out which users exist.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from hmac import compare_digest
from typing import Final, NamedTuple, Protocol

from moldau.security.principal import USER, Principal
from moldau.security.sasl.mechanism import Authenticated, Challenge, Failed, Mechanism, Step
from moldau.security.sasl.scram.credential import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramForm,
    ScramMechanism,
    digest,
    exclusive_or,
    keyed,
    salt_of_number,
)
from moldau.security.sasl.scram.messages import (
    TOKEN_EXTENSION,
    ClientFirst,
    MalformedScram,
    base64_text,
    parse_client_final,
    parse_client_first,
)

NONCE_SIZE: Final = 18
"""Random bytes in the server's nonce, which is sent in base64: all its characters are allowed there."""
DRAW_BITS: Final = 64
"""The bits of the number that chooses the form of the answer to an unknown user."""


class TokenLogin(NamedTuple):
    """The credentials and the principal of a delegation token's bearer."""

    credential: ScramCredential
    owner: Principal
    expires_at_ms: int


class ScramUsers(Protocol):
    """Looks up the current SCRAM credentials of users and delegation tokens."""

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """The credential of a user; None where it has none of this mechanism."""

    def drawn_form(self, mechanism: ScramMechanism, draw: int) -> ScramForm:
        """The form of one of the credentials of a mechanism. `draw`, a number of `DRAW_BITS` bits, chooses it: each
        form has a share of the numbers according to the number of its credentials.
        """

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
            fake = self._fake_token(first.user)
            self._token = self._users.token(self._mechanism, first.user)
            self._credential = None if self._token is None else self._token.credential
        else:
            fake = self._fake_user(first.user)
            self._credential = self._users.credential(self._mechanism, first.user)
        shown = self._credential or fake
        salt, iterations = shown.salt, shown.iterations
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
        fake = self._fake_credential(b"", ITERATIONS_MIN)
        credential = self._credential or fake
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

    def _fake_user(self, user: str) -> ScramCredential:
        """What an unknown user is shown: always the same, as long as the credentials of others have these forms."""
        named = f"{self._mechanism.mechanism_name}\0{user}".encode()
        draw = int.from_bytes(hmac.digest(self._secret, b"form\0" + named, "sha256")[: DRAW_BITS // 8], "big")
        form = self._users.drawn_form(self._mechanism, draw)
        seed = hmac.digest(self._secret, named, "sha256")
        salt = hashlib.shake_256(seed).digest(form.salt_size) or salt_of_number(int.from_bytes(seed, "big"))
        return self._fake_credential(salt, form.iterations)

    def _fake_token(self, token_id: str) -> ScramCredential:
        """What the bearer of an unknown token is shown: a salt as `credential_of_token` makes it."""
        named = f"{self._mechanism.mechanism_name}\0{token_id}".encode()
        return self._fake_credential(hmac.digest(self._secret, b"token\0" + named, "sha256"), ITERATIONS_MIN)

    def _fake_credential(self, salt: bytes, iterations: int) -> ScramCredential:
        """A credential that no proof satisfies."""
        key = self._random_bytes(self._mechanism.key_size)
        return ScramCredential(salt, key, key, iterations)

    def _failed(self, reason: str) -> Failed:
        self._is_over = True
        return Failed(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            + self._mechanism.mechanism_name,
            reason,
        )
