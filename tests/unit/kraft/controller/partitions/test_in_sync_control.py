"""AlterPartition: what is answered before any partition is looked at, and the sets that a leader may not propose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.kraft.controller.partitions.in_sync_control import alter_partition, members_of, refusal_of
from moldau.kraft.controller.partitions.partition_change import RECOVERED, RECOVERING
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from tests.unit.kraft.image.images import broker, image_of, topic

NOBODY: Any = SimpleNamespace(view=SimpleNamespace(image=SimpleNamespace(cluster=SimpleNamespace(brokers={}))))


def answer(request: AlterPartitionRequest) -> AlterPartitionResponse:
    return cast("AlterPartitionResponse", alter_partition(NOBODY, request).reply)


def test_a_request_without_a_partition_is_answered_whoever_sends_it() -> None:
    assert answer(AlterPartitionRequest(broker_id=77, broker_epoch=5)).error_code == ErrorCode.NONE


def test_a_broker_that_is_not_registered_changes_nothing() -> None:
    asked = AlterPartitionRequest(broker_id=77, broker_epoch=5, topics=[TopicData(topic_id=b"\1" * 16)])
    assert answer(asked) == AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)


@pytest.mark.parametrize("has_recovered", [True, False])
@pytest.mark.parametrize(
    ("isr", "state", "error"),
    [
        ([1], RECOVERED, ErrorCode.NONE),
        ([1, 2], RECOVERED, ErrorCode.NONE),
        ([1], RECOVERING, ErrorCode.NONE),
        ([1, 2], RECOVERING, ErrorCode.INVALID_REQUEST),
        ([2], RECOVERED, ErrorCode.INVALID_REQUEST),
        ([1, 1], RECOVERED, ErrorCode.INVALID_REQUEST),
        ([1, 9], RECOVERED, ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_in_sync_sets_that_a_leader_may_propose(
    isr: list[int], state: int, error: ErrorCode, has_recovered: bool
) -> None:
    """A leader that was elected uncleanly is alone in sync until it has recovered, and does not begin that again."""
    image = image_of([broker(1), broker(2), *topic("t", 7)])
    serving = {node_id: each._replace(fenced=False) for node_id, each in image.cluster.brokers.items()}
    image = image._replace(cluster=image.cluster._replace(brokers=serving))
    ((_, _, registered),) = image.topics.partitions()
    partition = registered._replace(leader_recovery_state=RECOVERED if has_recovered else RECOVERING)
    data = PartitionData(partition_index=0, leader_epoch=0, new_isr=isr, leader_recovery_state=state, partition_epoch=0)
    expected = ErrorCode.INVALID_REQUEST if state == RECOVERING and has_recovered else error
    assert refusal_of(image, 1, partition, data, members_of(data)) is expected
