"""StreamsGroupTopologyDescriptionUpdate (API 93; KIP-1331): a member describes the topology of its Streams group."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.messages.streams_group_describe import TopologyDescription
from moldau.protocol.schema import Int16, Int32, message, nullable


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: str
    member_id: str
    topology_epoch: Int32
    topology_description: TopologyDescription


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
