"""Delegation tokens (KIP-48): they let a client log in as a user for a limited time, with a secret that is derived from
the token's id.

secret = HMAC-SHA-512(key of the cluster, id)      the bearer logs in by SCRAM with the id and the secret in base64
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from moldau.protocol.late_tuple import NamedTuple
from moldau.security.principal import ANONYMOUS, Principal
from moldau.security.sasl.scram.credential import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of_password,
)


class DelegationToken(NamedTuple):
    """A delegation token, as the metadata describes it. Times are of the wall clock (ms)."""

    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_at_ms: int
    max_at_ms: int
    """The time (ms) beyond which the token cannot be renewed."""
    expires_at_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms <= now_ms or self.max_at_ms <= now_ms

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Whether the principal may renew the token: it is the owner or one of the renewers. Having requested the token
        does not suffice.
        """
        return any(is_same_principal(principal, each) for each in (self.owner, *self.renewers))

    def is_known_to(self, principal: Principal) -> bool:
        """Whether the principal may see the token without an ACL: it requested the token, or may renew it."""
        return is_same_principal(principal, self.requester) or self.may_be_renewed_by(principal)


def may_hold_tokens(principal: Principal) -> bool:
    """Whether the principal may send requests about delegation tokens: it has authenticated, and not by a token."""
    return not principal.is_token_authenticated and not is_same_principal(principal, ANONYMOUS)


def is_same_principal(one: Principal, other: Principal) -> bool:
    """Whether two principals have the same type and name. One of them may be authenticated by a delegation token, and
    the other not.
    """
    return one[:2] == other[:2]


def secret_of(token_id: str, key: bytes) -> bytes:
    """The secret of a token, 64 bytes, which the owner gets from CreateDelegationToken. `key` is the secret key of the
    cluster.
    """
    import hmac

    return hmac.digest(key, token_id.encode(), "sha512")


SALT_LABEL: Final = b"salt of a delegation token\0"


def credential_of_token(mechanism: ScramMechanism, token_id: str, key: bytes) -> ScramCredential:
    """The SCRAM credential that verifies the proof of a client that logs in with a token.

    Its salt is derived from the token's id and the key, so that it is the same on every node. Computing the credential
    takes some milliseconds, so callers cache it.
    """
    import hmac

    salt = hmac.digest(key, SALT_LABEL + token_id.encode(), "sha256")
    password = b64encode(secret_of(token_id, key)).decode()
    return credential_of_password(mechanism, password, salt, ITERATIONS_MIN)
