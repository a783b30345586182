"""DescribeUserScramCredentials (API key 50, version 0; KIP-554): the mechanisms and iterations of users, never keys.

If the request names no user, the response has all users with credentials.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import Answering, in_parts, sorted_in_slices
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.kraft.image.persistent_map import PersistentMap
from moldau.kraft.image.security.scram_credentials import ScramKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from moldau.security.access import AclOperation
from moldau.security.sasl.scram.credential import SCRAM_MECHANISMS, ScramCredential

Credentials = PersistentMap[ScramKey, ScramCredential]


def handle(services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest) -> object:
    credentials = services.cluster.image.scram.credentials
    names = Counter(user.name for user in request.users or ())
    if not names:
        return services.long_requests.answer(context, _all_described(credentials))
    return DescribeUserScramCredentialsResponse(
        results=[_result(name, _infos(credentials, name), is_repeated=count > 1) for name, count in names.items()]
    )


def _all_described(credentials: Credentials) -> Answering:
    users: dict[str, None] = {}
    for user, _ in credentials:
        yield
        users[user] = None
    response = DescribeUserScramCredentialsResponse()
    for user in (yield from sorted_in_slices(users)):
        yield
        response.results.append(_result(user, _infos(credentials, user), is_repeated=False))
    return response


def _infos(credentials: Credentials, user: str) -> list[CredentialInfo]:
    """The credentials of a user, sorted by mechanism."""
    found = ((code, credentials.get(ScramKey(user, code))) for code in SCRAM_MECHANISMS.values())
    return [CredentialInfo(mechanism=code, iterations=each.iterations) for code, each in found if each is not None]


def _result(name: str, infos: list[CredentialInfo], *, is_repeated: bool) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        error = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif not infos:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
    return DescribeUserScramCredentialsResult(user=name, error_code=error, error_message=message)


API: Final = Api(
    DescribeUserScramCredentialsRequest,
    broker=handle,
    needs=needs_cluster(AclOperation.DESCRIBE),
    lists=[in_parts("users", "results")],
)
