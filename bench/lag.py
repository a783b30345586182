"""What the lag of groups on `/metrics` costs: 500 groups with an offset in each of 1,000 topics, scraped each 15 s."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final
from urllib.request import urlopen

from bench.client import Client
from bench.figures import OURS, Figure
from bench.frames import batch_of, produce_frame
from bench.groups import RunForm
from bench.processes import children, cpu_time
from bench.rows import LAG_PAGE, lag_row
from bench.subjects import Bench, RunningBroker, remove_server
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

TOPICS: Final = [f"topic-{number:04}" for number in range(1_000)]
GROUPS: Final = [f"group-{number:03}" for number in range(500)]
RECORDS: Final = [100] * 10
"""The sizes of the records that are produced to a topic at once."""
INTERVAL_S: Final = 15
"""The usual interval between two scrapes of Prometheus."""
FRESH_S: Final = 5.5
"""The interval between two scrapes here. It is long enough for a new sample, and short, so that little else is
measured.
"""
SCRAPES: Final = 4
SCRAPES_QUICK: Final = 2
SETTLE_S: Final = 70.0
"""The wait after the groups are created, in which the sample of each minute has been taken."""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure this broker alone, because Apache Kafka exports no lag."""
    shares: dict[str, list[float]] = {}
    sizes: list[float] = []
    port = bench.free_pair()
    server = bench.new_server(OURS, extra=(f"moldau.http.listener=http://127.0.0.1:{port}",))
    server.format()
    with RunningBroker(server) as running:
        client = running.connect()
        create_topics_and_groups(client)
        cases: dict[str, Callable[[int], object]] = {
            "at rest": lambda turn: None,
            "all topics grow": lambda turn: produce_to_all_topics(client),
            "all groups commit and all topics grow": lambda turn: produce_and_commit(client, turn),
        }
        scrapes = SCRAPES_QUICK if form.is_quick else SCRAPES
        for case, happens in cases.items():
            for turn in range(scrapes + 1):
                happens(turn)
                time.sleep(FRESH_S)
                before_s = cpu_used_s(running.pid)
                with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
                    size = len(page.read())
                cost_s = cpu_used_s(running.pid) - before_s
                if turn:
                    shares.setdefault(case, []).append(100 * cost_s / INTERVAL_S)
                    sizes.append(size / 1e6)
            print(
                f"  lag, {case}: {' '.join(f'{each:.2f}' for each in shares[case])} %, {sizes[-1]:.2f} MB", flush=True
            )
        client.close()
    remove_server(server)
    return [
        *(Figure(lag_row(case), "%", {OURS: each}) for case, each in shares.items()),
        Figure(LAG_PAGE, "MB", {OURS: sizes}),
    ]


def cpu_used_s(pid: int) -> float:
    """The CPU time of a node and of its worker processes."""
    return sum(cpu_time(each).total_s for each in (pid, *children(pid)))


def create_topics_and_groups(client: Client) -> None:
    for begin in range(0, len(TOPICS), 100):
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in TOPICS[begin : begin + 100]
        ]
        made = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), CreateTopicsResponse, 5)
        assert not any(each.error_code for each in made.topics)
    for name in TOPICS:
        client.produce_with_retries(name)
    client.ask(FindCoordinatorRequest(coordinator_keys=GROUPS[:1]), FindCoordinatorResponse, 4)
    deadline = time.monotonic() + 60
    while not commit_in_all_topics(client, GROUPS[0], 0):
        assert time.monotonic() < deadline, "the coordinator does not answer"
        time.sleep(0.1)
    produce_and_commit(client, 0)
    time.sleep(SETTLE_S)


def produce_to_all_topics(client: Client) -> None:
    """Produce a batch to each topic."""
    batch = batch_of(RECORDS, time.time_ns() // 1_000_000)
    for name in TOPICS:
        client.exchange(produce_frame(name, batch, 0))


def produce_and_commit(client: Client, turn: int) -> None:
    """Produce a batch to each topic, and let each group commit an offset in each topic."""
    produce_to_all_topics(client)
    for group in GROUPS:
        assert commit_in_all_topics(client, group, turn)


def commit_in_all_topics(client: Client, group: str, offset: int) -> bool:
    """Commit an offset of a group in each topic."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in TOPICS]
    reply = client.ask(OffsetCommitRequest(group_id=group, member_id="", topics=topics), OffsetCommitResponse, 8)
    return not any(each.error_code for topic in reply.topics for each in topic.partitions)
