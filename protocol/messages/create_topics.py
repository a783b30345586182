"""CreateTopics (API 19): create topics."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import ZERO_UUID, Int8, Int16, Int32, Uuid, empty, message, nullable, since, struct, tag


@struct
class CreatableReplicaAssignment:
    partition_index: Int32
    broker_ids: list[Int32] = empty()


@struct
class CreatableTopicConfig:
    name: str
    value: Annotated[str | None, nullable()] = ""


@struct
class CreatableTopic:
    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment] = empty()
    configs: list[CreatableTopicConfig] = empty()


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = empty()
    timeout_ms: Int32 = 60000
    validate_only: bool = False


@struct
class CreatableTopicConfigs:
    name: str
    value: Annotated[str | None, nullable(5)] = ""
    read_only: bool
    config_source: Int8 = -1
    is_sensitive: bool


@struct
class CreatableTopicResult:
    name: str
    topic_id: Annotated[Uuid, since(7)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    topic_config_error_code: Annotated[Int16, since(5), tag(0)] = 0
    num_partitions: Annotated[Int32, since(5)] = -1
    replication_factor: Annotated[Int16, since(5)] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, since(5), nullable(5)] = empty()


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = empty()
