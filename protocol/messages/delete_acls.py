"""DeleteAcls (API 31): remove the ACL bindings that match filters."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, empty, message, nullable, struct


@struct
class DeleteAclsFilter:
    resource_type_filter: Int8
    resource_name_filter: Annotated[str | None, nullable()]
    pattern_type_filter: Int8 = 3
    principal_filter: Annotated[str | None, nullable()]
    host_filter: Annotated[str | None, nullable()]
    operation: Int8
    permission_type: Int8


@message(key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = empty()


@struct
class DeleteAclsMatchingAcl:
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@struct
class DeleteAclsFilterResult:
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    matching_acls: list[DeleteAclsMatchingAcl] = empty()


@message(key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = empty()
