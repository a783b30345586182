"""ApiVersions (API 18): the APIs, versions and features that a server supports."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, empty, message, nullable, since, struct, tag


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    client_software_name: Annotated[str, since(3)] = ""
    client_software_version: Annotated[str, since(3)] = ""
    cluster_id: Annotated[str | None, since(5), nullable(5)] = None
    node_id: Annotated[Int32, since(5)] = -1


@struct
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    name: str
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeatureKey:
    name: str
    max_version_level: Int16
    min_version_level: Int16


# The client does not know yet which versions the broker speaks, so it reads the header of this reply in one form.
@message(key=18, versions="0-5", flexible="3+", has_flexible_header=False)
class ApiVersionsResponse:
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = empty()
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    supported_features: Annotated[list[SupportedFeatureKey], since(3), tag(0)] = empty()
    finalized_features_epoch: Annotated[Int64, since(3), tag(1)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], since(3), tag(2)] = empty()
    zk_migration_ready: Annotated[bool, since(3), tag(3)] = False
