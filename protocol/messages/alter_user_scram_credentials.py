"""AlterUserScramCredentials (API 51): create, replace or delete the SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Bytes, Int8, Int16, Int32, empty, message, nullable, struct


@struct
class ScramCredentialDeletion:
    name: str
    mechanism: Int8


@struct
class ScramCredentialUpsertion:
    name: str
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = empty()
    upsertions: list[ScramCredentialUpsertion] = empty()


@struct
class AlterUserScramCredentialsResult:
    user: str
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = empty()
