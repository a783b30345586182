"""The public keys of an identity provider, parsed with limits from a JSON Web Key Set (RFC 7517).

A key verifies only signatures by the algorithms of its own type, so that no token can choose how a key is used.
Symmetric keys are left out: otherwise a client could sign a token with a public key as the secret (confusion of RS and
HS algorithms).
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm

SIZE_MAX: Final = 1 << 20
"""The maximum size (bytes) of a key set."""
KEYS_MAX: Final = 256
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 8_192
_HASHES: Final[dict[str, HashAlgorithm]] = {"256": SHA256(), "384": SHA384(), "512": SHA512()}
_CURVES: Final[dict[str, tuple[str, ec.EllipticCurve]]] = {
    "P-256": ("ES256", ec.SECP256R1()),
    "P-384": ("ES384", ec.SECP384R1()),
    "P-521": ("ES512", ec.SECP521R1()),
}
RSA_ALGORITHMS: Final = tuple(kind + size for kind in ("RS", "PS") for size in _HASHES)
ALGORITHMS: Final = frozenset((*RSA_ALGORITHMS, *(name for name, _ in _CURVES.values())))
"""The algorithms with which a token may be signed."""


class InvalidKeys(ValueError):
    """Raised if a key set cannot be read."""


class VerificationKey(NamedTuple):
    """A public key of a provider, with the algorithms that it may verify."""

    id: str | None
    algorithms: tuple[str, ...]
    verify: Callable[[str, bytes, bytes], bool]
    """Called with (algorithm, signature, data). Returns whether the signature by this algorithm matches the data."""


class KeySet(NamedTuple):
    """The usable keys of a provider."""

    keys: tuple[VerificationKey, ...] = ()

    def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """The key that verifies a token with this key id and algorithm; None if there is none. If the token has no key
        id, there must be exactly one key for the algorithm.
        """
        fitting = [key for key in self.keys if algorithm in key.algorithms and key_id in (None, key.id)]
        return fitting[0] if fitting and (key_id is not None or len(fitting) == 1) else None


def parse_key_set(data: bytes) -> KeySet:
    """Parse a key set. Raises `InvalidKeys`."""
    if len(data) > SIZE_MAX:
        raise InvalidKeys(f"the key set has more than {SIZE_MAX} bytes")
    try:
        keys = json.loads(data)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidKeys("the key set is not JSON with a list of keys") from None
    if not isinstance(keys, list) or len(keys) > KEYS_MAX:
        raise InvalidKeys(f"the key set is not a list of at most {KEYS_MAX} keys")
    return KeySet(tuple(key for each in keys if isinstance(each, dict) and (key := _key(each)) is not None))


def _key(fields: Mapping[str, object]) -> VerificationKey | None:
    """Parse one key of a key set. Returns None for a key that is not for signatures, has an unknown type, or is
    invalid.
    """
    if fields.get("use", "sig") != "sig":
        return None
    try:
        key = _rsa_key(fields) if fields.get("kty") == "RSA" else _curve_key(fields)
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None
    named = fields.get("alg")
    if key is None or named is None:
        return key
    return key._replace(algorithms=(str(named),)) if named in key.algorithms else None


def _rsa_key(fields: Mapping[str, object]) -> VerificationKey | None:
    public = rsa.RSAPublicNumbers(_number(fields["e"]), _number(fields["n"])).public_key()
    if not RSA_BITS_MIN <= public.key_size <= RSA_BITS_MAX:
        return None

    def verify(algorithm: str, signature: bytes, data: bytes) -> bool:
        chosen = _HASHES[algorithm[2:]]
        scheme = (
            padding.PKCS1v15() if algorithm.startswith("RS") else padding.PSS(padding.MGF1(chosen), chosen.digest_size)
        )
        try:
            public.verify(signature, data, scheme, chosen)
        except InvalidSignature:
            return False
        return True

    return VerificationKey(_id(fields), RSA_ALGORITHMS, verify)


def _curve_key(fields: Mapping[str, object]) -> VerificationKey | None:
    if fields.get("kty") != "EC":
        return None
    algorithm, curve = _CURVES[str(fields["crv"])]
    public = ec.EllipticCurvePublicNumbers(_number(fields["x"]), _number(fields["y"]), curve).public_key()
    size = (curve.key_size + 7) // 8

    def verify(algorithm: str, signature: bytes, data: bytes) -> bool:
        if len(signature) != 2 * size:
            return False
        halves = (int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big"))
        try:
            public.verify(encode_dss_signature(*halves), data, ec.ECDSA(_HASHES[algorithm[2:]]))
        except InvalidSignature:
            return False
        return True

    return VerificationKey(_id(fields), (algorithm,), verify)


def _id(fields: Mapping[str, object]) -> str | None:
    value = fields.get("kid")
    return value if isinstance(value, str) else None


def _number(value: object) -> int:
    if not isinstance(value, str):
        raise TypeError("a number of a key is a text")
    return int.from_bytes(base64url(value), "big")


def base64url(text: str) -> bytes:
    """Decode base64 for URLs, without padding. Raises ValueError."""
    if not text.isascii() or any(char in text for char in "=+/ \n\r"):
        raise ValueError("the text is not base64 for URLs")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
