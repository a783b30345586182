"""DescribeAcls (API key 29, versions 1-3; KIP-11, KIP-290, KIP-373): the ACLs that a filter selects, by pattern.

1: prefixes (KIP-290) · 3: ACLs on users (KIP-373). If there is no authorizer, the error is SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import Answering
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from moldau.security.access import AclOperation
from moldau.security.acl.bindings import AclFilter

DICTIONARIES: Final = 256
"""The number of dictionaries over which the patterns are spread. A dictionary that grows is copied at once, so each
must stay small."""
NO_AUTHORIZER = "No Authorizer is configured on the broker"


def handle(services: Services, context: RequestContext, request: DescribeAclsRequest) -> object:
    if not services.has_authorizer:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if wanted.has_unknown_pattern or wanted.has_unknown_entry:
        # DIVERGES: Apache Kafka closes the connection on a filter of an unknown type.
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message="The filter is not known.")
    return services.long_requests.answer(context, _described(services.cluster.image, wanted))


def _described(image: MetadataImage, wanted: AclFilter) -> Answering:
    response = DescribeAclsResponse()
    described: list[dict[tuple[int, str, int], DescribeAclsResource]] = [{} for _ in range(DICTIONARIES)]
    for binding in image.acls.by_id.values():
        yield
        if not wanted.matches(binding):
            continue
        pattern = (binding.kind, binding.name, binding.pattern_type)
        resources = described[hash(pattern) % DICTIONARIES]
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=binding.kind, resource_name=binding.name, pattern_type=binding.pattern_type, acls=[]
            )
            response.resources.append(resource)
        resource.acls.append(
            AclDescription(
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
        )
    for resources in described:
        while resources:
            resources.popitem()  # All at once would take long.
            yield
    return response


API: Final = Api(DescribeAclsRequest, broker=handle, controller=handle, needs=needs_cluster(AclOperation.DESCRIBE))
