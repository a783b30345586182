"""The state of a broker in `moldau cluster-status`."""

from __future__ import annotations

import pytest

from moldau.broker.cli.daily.cluster_view import disk_state
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsResult

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
