"""DescribeAcls (API key 29, versions 1-3; KIP-11, KIP-290): there is no authorizer, so there are no ACLs to list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def handle(services: object, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    # DIVERGES: Apache Kafka closes the connection on a filter of an unknown type; without an authorizer none is read.
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
