"""The state of a broker in `moldau cluster-status`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.broker.cli.daily.cluster_view import disk_state, quorum_state
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsResult
from moldau.protocol.messages.describe_quorum import DescribeQuorumResponse, ResponsePartitionData, ResponseTopicData

GIB = 1 << 30


def directory(
    usable_bytes: int, total_bytes: int = 100 * GIB, error: ErrorCode = ErrorCode.NONE
) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=error, log_dir="/data", topics=[], total_bytes=total_bytes, usable_bytes=usable_bytes
    )


@pytest.mark.parametrize(
    ("directories", "state"),
    [
        ([directory(50 * GIB), directory(GIB)], "serving"),
        ([directory(50 * GIB), directory(GIB - 1)], "short of space on 1 disk"),
        ([directory(0), directory(0)], "short of space on 2 disks"),
        ([directory(-1, -1)], "serving"),
        ([directory(0), directory(-1, -1, ErrorCode.KAFKA_STORAGE_ERROR)], "without 1 disk"),
    ],
)
def test_a_broker_whose_disks_are_full_or_failed_is_not_well(
    directories: list[DescribeLogDirsResult], state: str
) -> None:
    assert disk_state(directories) == state


def quorum_answer(error: int = 0, partition_error: int = 0) -> Any:
    """A client of a cluster whose quorum answers so."""
    partition = ResponsePartitionData(
        partition_index=0, error_code=partition_error, leader_id=1, leader_epoch=2, high_watermark=3
    )
    topics = [] if error else [ResponseTopicData(topic_name="__cluster_metadata", partitions=[partition])]
    return SimpleNamespace(ask=lambda *_: DescribeQuorumResponse(error_code=error, topics=topics))


def test_a_quorum_without_an_answer_is_a_problem_and_no_end_of_the_command() -> None:
    told = "the controller quorum does not answer ({})"
    assert quorum_state(quorum_answer(partition_error=6)) == (None, [told.format("NOT_LEADER_OR_FOLLOWER")])
    assert quorum_state(quorum_answer(ErrorCode.REQUEST_TIMED_OUT)) == (None, [told.format("REQUEST_TIMED_OUT")])
    assert quorum_state(quorum_answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)) == (None, [])
    row, problems = quorum_state(quorum_answer())
    assert row is not None and (row["leader"], problems) == (1, [])
