"""CreateAcls (API 30): add ACL bindings."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, empty, message, nullable, struct


@struct
class AclCreation:
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation] = empty()


@struct
class AclCreationResult:
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = empty()
