"""DescribeUserScramCredentials (API 50): list which SCRAM credentials users have (KIP-554)."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, empty, message, nullable, struct


@struct
class UserName:
    name: str


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: Annotated[list[UserName] | None, nullable()] = empty()


@struct
class CredentialInfo:
    mechanism: Int8
    iterations: Int32


@struct
class DescribeUserScramCredentialsResult:
    user: str
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    credential_infos: list[CredentialInfo] = empty()


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    results: list[DescribeUserScramCredentialsResult] = empty()
