"""DeleteTopics (API 20): delete topics by name or id."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import ZERO_UUID, Int16, Int32, Uuid, empty, message, nullable, since, struct, until


@struct
class DeleteTopicState:
    name: Annotated[str | None, nullable(6)] = None
    topic_id: Uuid


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: Annotated[list[DeleteTopicState], since(6)] = empty()
    topic_names: Annotated[list[str], until(5)] = empty()
    timeout_ms: Int32


@struct
class DeletableTopicResult:
    name: Annotated[str | None, nullable(6)] = ""
    topic_id: Annotated[Uuid, since(6)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(5), nullable(5)] = None


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = empty()
