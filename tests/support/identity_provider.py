"""An identity provider: keys of its own, their set in JSON, and tokens that it signs."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

Claims = dict[str, object]


def text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def number(value: int) -> str:
    return text(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def unsigned(header: Claims, claims: Claims) -> str:
    return ".".join(text(json.dumps(each).encode()) for each in (header, claims))


class IdentityProvider:
    """One RSA key with the id "r" and one on P-256 with the id "e"."""

    def __init__(self) -> None:
        self._rsa = rsa.generate_private_key(65537, 2048)
        self._curve = ec.generate_private_key(ec.SECP256R1())

    def key_set(self, **changes: object) -> bytes:
        """`changes`: of the fields of the RSA key."""
        rsa_numbers = self._rsa.public_key().public_numbers()
        curve = self._curve.public_key().public_numbers()
        rsa_key = {"kty": "RSA", "kid": "r", "use": "sig", "n": number(rsa_numbers.n), "e": number(rsa_numbers.e)}
        curve_key = {
            "kty": "EC",
            "kid": "e",
            "crv": "P-256",
            "x": number(curve.x),
            "y": number(curve.y),
        }
        secret = {"kty": "oct", "kid": "s", "k": text(b"secret"), "alg": "HS256"}
        return json.dumps({"keys": [{**rsa_key, **changes}, curve_key, secret, {"kty": "new"}]}).encode()

    def token(self, claims: Claims, algorithm: str = "RS256", key_id: str | None = "r") -> str:
        header: Claims = {"alg": algorithm} if key_id is None else {"alg": algorithm, "kid": key_id}
        signed = unsigned(header, claims)
        return f"{signed}.{text(self.signature(signed.encode(), algorithm))}"

    def signature(self, signed: bytes, algorithm: str) -> bytes:
        if algorithm == "ES256":
            r, s = decode_dss_signature(self._curve.sign(signed, ec.ECDSA(SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        if algorithm == "PS256":
            return self._rsa.sign(signed, padding.PSS(padding.MGF1(SHA256()), 32), SHA256())
        return self._rsa.sign(signed, padding.PKCS1v15(), SHA256())
