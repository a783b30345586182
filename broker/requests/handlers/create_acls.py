"""CreateAcls (API key 30, versions 1-3; KIP-11, KIP-290): each creation is refused, for there is no authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext

NO_AUTHORIZER = "No Authorizer is configured."


def handle(services: object, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    # DIVERGES: Apache Kafka closes the connection on an ACL of an unknown type; without an authorizer none is read.
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.creations
        ]
    )
