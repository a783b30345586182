"""AlterPartition: what is answered before any partition is looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from moldau.kraft.controller.partitions.in_sync_control import alter_partition
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, TopicData

NOBODY: Any = SimpleNamespace(view=SimpleNamespace(image=SimpleNamespace(cluster=SimpleNamespace(brokers={}))))


def answer(request: AlterPartitionRequest) -> AlterPartitionResponse:
    return cast("AlterPartitionResponse", alter_partition(NOBODY, request).reply)


def test_a_request_without_a_partition_is_answered_whoever_sends_it() -> None:
    assert answer(AlterPartitionRequest(broker_id=77, broker_epoch=5)).error_code == ErrorCode.NONE


def test_a_broker_that_is_not_registered_changes_nothing() -> None:
    asked = AlterPartitionRequest(broker_id=77, broker_epoch=5, topics=[TopicData(topic_id=b"\1" * 16)])
    assert answer(asked) == AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
