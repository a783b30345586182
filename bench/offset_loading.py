"""A million committed offsets in one partition of `__consumer_offsets`: how long the group coordinator loads them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from bench.client import Client
from bench.figures import Figure
from bench.frames import batch_of, produce_frame
from bench.groups import Form
from bench.pinger import Pinger
from bench.processes import cpu_time, memory
from bench.start import compile_packages
from bench.subjects import Bench, Running, Server, remove
from broker.config.internal_topics import GROUP_METADATA_TOPIC
from coordinator.group.records import CommittedOffset, OffsetChange, record_of
from coordinator.runtime.partition import partition_of
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.record_builder import build_batch

OTHER_TOPIC: Final = "other"
OFFSETS_PARTITIONS: Final = 4
"""As the brokers of a measurement are configured."""
GROUPS_COUNT: Final = 1_000
TOPICS_COUNT: Final = 10
PARTITIONS_COUNT: Final = 100
RECORDS_A_COMMIT: Final = 10
SEGMENT_NAME: Final = f"{0:020}.log"


def measure(bench: Bench, form: Form) -> list[Figure]:
    """Brokers that were killed with the same log start in turns; other requests go on meanwhile."""
    compile_packages()
    groups = group_names()
    log = offsets_log(groups)
    servers = {name: _prepared(bench.new(name), groups[0], log) for name in bench.names}
    measured: dict[str, dict[str, list[float]]] = {}
    for _ in range(form.rounds):
        for name, server in servers.items():
            values = _load(server, groups[-1])
            print(f"  offset loading {name}: {', '.join(f'{key} {value:.3g}' for key, value in values.items())}")
            for key, value in values.items():
                measured.setdefault(key, {}).setdefault(name, []).append(value)
    for server in servers.values():
        remove(server)
    names = {
        "loaded": ("a million offset records loaded", "s"),
        "cpu": ("a million offset records loaded: user + system CPU", "s"),
        "p99": ("p99 of other requests while offsets load", "ms"),
        "slowest": ("slowest of other requests while offsets load", "ms"),
        "memory": ("a million offsets loaded: anonymous memory", "MB"),
    }
    return [Figure(name, unit, measured[key]) for key, (name, unit) in names.items()]


def group_names() -> list[str]:
    """Groups that one partition keeps."""
    names = (f"group-{number}" for number in range(100 * GROUPS_COUNT))
    kept = [name for name in names if partition_of(name, OFFSETS_PARTITIONS) == 0]
    return kept[:GROUPS_COUNT]


def offsets_log(groups: list[str]) -> bytes:
    """A batch for each commit of ten partitions; every group has a thousand of them."""
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


def _prepared(server: Server, group: str, log: bytes) -> Server:
    server.format()
    with Running(server) as running:
        client = running.connect()
        client.create_topic(OTHER_TOPIC)
        client.ask(FindCoordinatorRequest(coordinator_keys=[group]), FindCoordinatorResponse, 4)
        _wait_for(client, group, ErrorCode.NONE)
        running.kill()
    (Path(server.data) / f"{GROUP_METADATA_TOPIC}-0" / SEGMENT_NAME).write_bytes(log)
    return server


def _load(server: Server, last_group: str) -> dict[str, float]:
    """From when the broker answers until the last group of the log is there."""
    with Running(server) as running:
        client = running.connect()
        client.produce_when_possible(OTHER_TOPIC)
        began = time.perf_counter()
        cpu_before = cpu_time(running.pid)
        frame = produce_frame(OTHER_TOPIC, batch_of([100], time.time_ns() // 1_000_000))
        others = Pinger(server.port, frame)
        _wait_for(client, last_group, ErrorCode.NONE)
        others.end()
        values = {
            "loaded": time.perf_counter() - began,
            "cpu": cpu_time(running.pid).since(cpu_before).total_s,
            "p99": others.p99_ms,
            "slowest": others.slowest_ms,
            "memory": memory(running.pid).anonymous_mb,
        }
        running.kill()
        return values


def _wait_for(client: Client, group: str, wanted: ErrorCode) -> None:
    """Ask for one offset of a group until its coordinator answers as wanted."""
    topics = [OffsetFetchRequestTopics(name="topic-0", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if client.ask(request, OffsetFetchResponse, 8).groups[0].error_code == wanted:
            return
        time.sleep(0.02)
    raise AssertionError(f"the coordinator of {group} does not answer")
