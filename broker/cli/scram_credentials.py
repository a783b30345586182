"""`--add-scram`: SCRAM credentials that are written with the first records of a cluster's metadata log.

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name="bob",salt=MWx2NHBkbnc0ZndxN25vdGN4bTB5Y3E=,saltedpassword=...,iterations=8192]

The password itself is not stored: the record holds keys that are derived from it.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.kraft.image.security.scram_credentials import ScramKey, record_of
from moldau.security.sasl.scram.credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    ScramMechanism,
    credential_of,
    new_salt,
    salted_password,
)

if TYPE_CHECKING:
    from moldau.protocol.records.metadata import UserScramCredentialRecord

OPTIONS: Final = frozenset({"name", "password", "salt", "iterations", "saltedpassword"})
EXAMPLE: Final = "SCRAM-SHA-256=[name=alice,password=alice-secret]"
_ARGUMENT: Final = re.compile(r"\s*([A-Z0-9-]+)\s*=\s*\[(.*)\]\s*", re.DOTALL)
_OPTION: Final = re.compile(r'\s*([a-z]+)\s*=\s*(?:"([^"]*)"|([^,"]*?))\s*(?:,|$)', re.DOTALL)


class InvalidScram(ValueError):
    """A credential of `--add-scram` is malformed. The message says why, and does not have the password."""


def scram_record(argument: str, random_bytes: Callable[[int], bytes]) -> UserScramCredentialRecord:
    """Make the metadata record of a credential in `--add-scram`. Raises `InvalidScram`."""
    match = _ARGUMENT.fullmatch(argument)
    if match is None:
        raise InvalidScram(f"--add-scram takes a credential as {EXAMPLE}")
    mechanism = SCRAM_MECHANISMS.get(match.group(1))
    if mechanism is None:
        raise InvalidScram(f"--add-scram {match.group(1)}: the mechanisms are {', '.join(SCRAM_MECHANISMS)}")
    options = _options(match.group(2))
    user = options.get("name")
    if not user:
        raise InvalidScram("--add-scram needs the name of a user")
    if ("password" in options) == ("saltedpassword" in options):
        raise InvalidScram(f"--add-scram of {user} needs one of password and saltedpassword")
    iterations = _iterations(options.get("iterations"), user)
    salt = _bytes(options["salt"], "salt") if "salt" in options else new_salt(random_bytes)
    if "saltedpassword" in options:
        if "salt" not in options:
            raise InvalidScram(f"--add-scram of {user} needs the salt of the saltedpassword")
        salted = _bytes(options["saltedpassword"], "saltedpassword")
        if len(salted) != mechanism.key_size:
            raise InvalidScram(f"the saltedpassword of {user} has {len(salted)} bytes in place of {mechanism.key_size}")
    else:
        salted = _salted(mechanism, options["password"], salt, iterations, user)
    return record_of(ScramKey(user, mechanism), credential_of(mechanism, salted, salt, iterations))


def _salted(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int, user: str) -> bytes:
    if not password:
        raise InvalidScram(f"the password of {user} is empty")
    return salted_password(mechanism, password.encode(), salt, iterations)


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _OPTION.match(text, position)
        if match is None or match.group(1) not in OPTIONS or match.group(1) in options:
            raise InvalidScram(f"--add-scram takes each of {', '.join(sorted(OPTIONS))} once, as in {EXAMPLE}")
        quoted, bare = match.group(2), match.group(3)
        options[match.group(1)] = bare if quoted is None else quoted
        position = match.end()
    return options


def _iterations(text: str | None, user: str) -> int:
    if text is None:
        return ITERATIONS_MIN
    if not (text.isascii() and text.isdigit()) or not ITERATIONS_MIN <= int(text[:9]) <= ITERATIONS_MAX:
        raise InvalidScram(f"the iterations of {user} are from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)


def _bytes(text: str, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidScram(f"the {name} of --add-scram is in base64") from None
