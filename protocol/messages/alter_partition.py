"""AlterPartition (API 56): a leader asks the controller to change the in-sync replicas."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import ZERO_UUID, Int8, Int16, Int32, Int64, Uuid, empty, message, since, struct, until


@struct
class BrokerState:
    broker_id: Annotated[Int32, since(3)] = 0
    broker_epoch: Annotated[Int64, since(3)] = -1


@struct
class PartitionData:
    partition_index: Int32
    leader_epoch: Int32
    new_isr: Annotated[list[Int32], until(2)] = empty()
    new_isr_with_epochs: Annotated[list[BrokerState], since(3)] = empty()
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


@struct
class TopicData:
    topic_id: Uuid
    partitions: list[PartitionData] = empty()


@message(key=56, versions="2-3", flexible="0+")
class AlterPartitionRequest:
    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[TopicData] = empty()


@struct
class PartitionResult:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = empty()
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


@struct
class TopicResult:
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = empty()


@message(key=56, versions="2-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[TopicResult] = empty()
