"""The time in which the group coordinator loads a million committed offsets from one partition of
`__consumer_offsets`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import Final

from bench.client import Client
from bench.coordinator_loading import LoadingRows, figures_of_loads, prepare_server
from bench.figures import Figure
from bench.groups import RunForm
from bench.start import compile_packages
from bench.subjects import Bench
from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.coordinators.shards import partition_of
from moldau.coordinator.group.records import CommittedOffset, OffsetChange
from moldau.coordinator.shard.kinds import record_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from moldau.protocol.record_builder import build_batch

OFFSETS_PARTITIONS: Final = 4
"""The number of partitions of the topic in the brokers of a measurement."""
GROUPS_COUNT: Final = 1_000
TOPICS_COUNT: Final = 10
PARTITIONS_COUNT: Final = 100
RECORDS_A_COMMIT: Final = 10
ROWS: Final = LoadingRows("offset loading", "a million offset records", "offsets", "a million offsets")


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Start brokers in turns that were killed with the same log, and measure the loading and other requests
    meanwhile."""
    groups = group_names(GROUPS_COUNT)
    return figures_of_groups(bench, form, ROWS, groups, offsets_log(groups))


def figures_of_groups(
    bench: Bench, form: RunForm, rows: LoadingRows, groups: Sequence[str], log: bytes
) -> list[Figure]:
    """Measure the loading of a log of these groups, until the last of them is loaded."""
    compile_packages()

    def begin(client: Client) -> None:
        find_first_group(client, groups[0])

    servers = {name: prepare_server(bench.new_server(name), GROUP_METADATA_TOPIC, log, begin) for name in bench.names}
    return figures_of_loads(servers, form.rounds, rows, lambda client: wait_for_group(client, groups[-1]))


def group_names(count: int) -> list[str]:
    """Return `count` names of groups that are all in one partition."""
    names = (f"group-{number}" for number in range(100 * count))
    kept = (name for name in names if partition_of(name, OFFSETS_PARTITIONS) == 0)
    return [*islice(kept, count)]


def find_first_group(client: Client, group: str) -> None:
    """Ask for the coordinator of a group until it exists. The request makes the broker create the topic
    of the offsets.
    """
    client.ask(FindCoordinatorRequest(coordinator_keys=[group]), FindCoordinatorResponse, 4)
    wait_for_group(client, group)


def offsets_log(groups: list[str]) -> bytes:
    """The log of the offsets: a batch for each commit of ten partitions. Every group has a thousand commits."""
    now_ms = time.time_ns() // 1_000_000
    log = bytearray()
    offset = 0
    for group in groups:
        changes = [
            OffsetChange(group, f"topic-{topic}", partition, CommittedOffset(123_456, 0, "", now_ms))
            for topic in range(TOPICS_COUNT)
            for partition in range(PARTITIONS_COUNT)
        ]
        for first in range(0, len(changes), RECORDS_A_COMMIT):
            records = [record_of(change, now_ms) for change in changes[first : first + RECORDS_A_COMMIT]]
            log += build_batch(records, base_offset=offset, base_sequence=0, partition_leader_epoch=0)
            offset += len(records)
    return bytes(log)


def wait_for_group(client: Client, group: str) -> None:
    """Ask for one offset of a group until its coordinator answers without an error."""
    topics = [OffsetFetchRequestTopics(name="topic-0", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if client.ask(request, OffsetFetchResponse, 8).groups[0].error_code == ErrorCode.NONE:
            return
        time.sleep(0.02)
    raise AssertionError(f"the coordinator of {group} does not answer")
