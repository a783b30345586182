"""DeleteAcls (API key 31, versions 1-3; KIP-11, KIP-290): each filter is refused, for there is no authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.requests.handlers.create_acls import NO_AUTHORIZER
from protocol.errors import ErrorCode
from protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext


def handle(services: object, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    # DIVERGES: Apache Kafka closes the connection on a filter of an unknown type; without an authorizer none is read.
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.filters
        ]
    )
