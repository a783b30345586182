"""DeleteShareGroupOffsets (API 92; KIP-932): delete the offsets of topics from an empty share group."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Uuid, empty, message, nullable, struct


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic] = empty()


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = empty()
