"""DescribeAcls (API 29): list the ACL bindings that match a filter."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, empty, message, nullable, struct


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: Int8
    resource_name_filter: Annotated[str | None, nullable()]
    pattern_type_filter: Int8 = 3
    principal_filter: Annotated[str | None, nullable()]
    host_filter: Annotated[str | None, nullable()]
    operation: Int8
    permission_type: Int8


@struct
class AclDescription:
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@struct
class DescribeAclsResource:
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = 3
    acls: list[AclDescription] = empty()


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    resources: list[DescribeAclsResource] = empty()
