"""DescribeUserScramCredentials (API key 50, version 0; KIP-554): no user has SCRAM credentials here.

Without names the answer lists all users that have some: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from broker.network.route import RequestContext


def handle(
    services: object, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    names = [user.name for user in request.users or ()]
    return DescribeUserScramCredentialsResponse(
        results=[_result(name, is_repeated=names.count(name) > 1) for name in dict.fromkeys(names)]
    )


def _result(name: str, *, is_repeated: bool) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        error = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    else:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResult(user=name, error_code=error, error_message=message)
