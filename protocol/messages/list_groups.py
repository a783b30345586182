"""ListGroups (API 16): the groups that this broker coordinates."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, empty, message, since, struct


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: Annotated[list[str], since(4)] = empty()
    types_filter: Annotated[list[str], since(5)] = empty()


@struct
class ListedGroup:
    group_id: str
    protocol_type: str
    group_state: Annotated[str, since(4)] = ""
    group_type: Annotated[str, since(5)] = ""


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = empty()
