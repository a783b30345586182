"""What a partition that brokers serve asks of its leader."""

from __future__ import annotations

from typing import Any

from moldau.tables.client.settings import client_settings_of
from moldau.tables.origins.broker_origin import BrokerPartition


class AnsweringCluster:
    """A cluster whose partitions have one record, of the time 5."""

    settings = client_settings_of(("broker:9092",), {})

    def offsets_at(self, keys: list[tuple[str, int]], timestamp: int) -> dict[tuple[str, int], int]:
        assert timestamp >= 0, "the end or the start of the log, and no time"
        return dict.fromkeys(keys, 0 if timestamp <= 5 else -1)


def test_a_time_before_1970_is_no_end_of_the_log() -> None:
    cluster: Any = AnsweringCluster()
    partition = BrokerPartition(cluster, ("orders", 0), None, 0, 1, 1, is_committed=False)
    assert [partition.offset_at(each) for each in (-2, -1, 0, 5, 6)] == [0, 0, 0, 0, None]
