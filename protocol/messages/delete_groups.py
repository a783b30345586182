"""DeleteGroups (API 42): delete empty groups."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, empty, message, nullable, since, struct


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = empty()


@struct
class DeletableGroupResult:
    group_id: str
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(3), nullable(3)] = None


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = empty()
