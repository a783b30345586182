"""The consumer protocol: the metadata in join and sync requests. The broker reads only the topics in it."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Bytes, Int32, empty, message, nullable, since, struct


@struct
class TopicPartition:
    topic: str
    partitions: list[Int32] = empty()


@message(versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    topics: list[str] = empty()
    user_data: Annotated[Bytes | None, nullable()] = None
    owned_partitions: Annotated[list[TopicPartition], since(1)] = empty()
    generation_id: Annotated[Int32, since(2)] = -1
    rack_id: Annotated[str | None, since(3), nullable(3)] = None


@message(versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    assigned_partitions: list[TopicPartition] = empty()
    user_data: Annotated[Bytes | None, nullable()] = None
