"""DescribeUserScramCredentials (API key 50, version 0; KIP-554): the mechanisms and iterations of users, never keys.

Without names the answer lists all users that have credentials.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from moldau.broker.requests.parts import STEP
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from moldau.broker.metadata.cluster_view import ClusterView
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.parts import Answering, LongRequests
    from moldau.kraft.image.metadata_image import MetadataImage


class DescribeScramServices(Protocol):
    """The services of the node that the handler of DescribeUserScramCredentials needs."""

    @property
    def cluster(self) -> ClusterView: ...

    @property
    def long_requests(self) -> LongRequests: ...


def handle(
    services: DescribeScramServices, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> object:
    return services.long_requests.answer(context, _described(services.cluster.image, request))


def _described(image: MetadataImage, request: DescribeUserScramCredentialsRequest) -> Answering:
    known: dict[str, list[CredentialInfo]] = {}
    for count, (key, credential) in enumerate(sorted(image.scram.credentials.items()), 1):
        if count % STEP == 0:
            yield
        info = CredentialInfo(mechanism=key.mechanism, iterations=credential.iterations)
        known.setdefault(key.user, []).append(info)
    names = Counter(user.name for user in request.users or ())
    results = [_result(name, known.get(name), is_repeated=count > 1) for name, count in names.items()]
    if not names:
        results = [_result(name, infos, is_repeated=False) for name, infos in known.items()]
    return DescribeUserScramCredentialsResponse(results=results)


def _result(name: str, infos: list[CredentialInfo] | None, *, is_repeated: bool) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        error = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif infos is None:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
    return DescribeUserScramCredentialsResult(user=name, error_code=error, error_message=message)
