"""The stored form of a SCRAM password, and the computations of RFC 5802, section 3.

SaltedPassword = PBKDF2(password, salt, iterations)
ClientKey = HMAC(SaltedPassword, "Client Key")      StoredKey = H(ClientKey)
ServerKey = HMAC(SaltedPassword, "Server Key")
ClientProof = ClientKey xor HMAC(StoredKey, messages)      ServerSignature = HMAC(ServerKey, messages)

The hash functions are imported at their first use, because they import OpenSSL, which a node without users does not
need.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from moldau.protocol.late_tuple import NamedTuple

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""The maximum number of iterations of a credential that is created, and of one that a server requests from this node as
a client.
"""
SALT_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(IntEnum):
    """The SCRAM mechanisms, with their codes in requests and records."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The name of the mechanism in SaslHandshake."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def key_size(self) -> int:
        """Size of a key in bytes."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64


SCRAM_MECHANISMS: Final = {
    each.mechanism_name: each for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
}


class ScramCredential(NamedTuple):
    """The stored form of a password. It suffices to verify a client's proof, but not to compute one. Its `repr` shows
    no key.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential of {self.iterations} iterations"


class ScramForm(NamedTuple):
    """The form of a credential that a client sees in the server's first message: the number of iterations, and the size
    and alphabet of the salt.
    """

    iterations: int
    salt_size: int
    """The size of the salt in bytes; 0 for a salt as Kafka's tools make it, a number in base 36."""


COMMON_FORM: Final = ScramForm(ITERATIONS_MIN, 0)
"""The form of the credentials that Kafka's tools make by default."""
_KAFKA_SALT: Final = re.compile(rb"[0-9a-z]{1,26}")


def form_of(credential: ScramCredential) -> ScramForm:
    salt = credential.salt
    is_of_kafka = _KAFKA_SALT.fullmatch(salt) is not None and int(salt, 36) >> SALT_BITS == 0
    return ScramForm(credential.iterations, 0 if is_of_kafka else len(salt))


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Derive the salted password (PBKDF2). The computation takes some milliseconds by design."""
    import hashlib

    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    return ScramCredential(
        salt, digest(mechanism, client_key(mechanism, salted)), server_key(mechanism, salted), iterations
    )


def credential_of_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    salted = salted_password(mechanism, password.encode(), salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def new_salt(random_bytes: Callable[[int], bytes]) -> bytes:
    """A random salt as Kafka's tools make it: a number of 130 bits in base 36."""
    return salt_of_number(int.from_bytes(random_bytes(17), "big"))


def salt_of_number(number: int) -> bytes:
    number %= 1 << SALT_BITS
    digits = []
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode() or b"0"


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac_digest(mechanism, salted, b"Client Key")


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac_digest(mechanism, salted, b"Server Key")


def digest(mechanism: ScramMechanism, data: bytes) -> bytes:
    import hashlib

    return hashlib.new(mechanism.hash_name, data).digest()


def hmac_digest(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    """HMAC of `data` with the hash function of the mechanism."""
    import hmac

    return hmac.digest(key, data, mechanism.hash_name)


def exclusive_or(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
