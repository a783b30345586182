"""`__consumer_offsets` under a steady load of commits: its size on disk, and the time in which a coordinator loads it.

Clients commit by OffsetCommit, one offset a request, over connections with several requests in flight. The cleaner runs
meanwhile, with the broker's settings. Then the broker is stopped and started.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, NamedTuple

from bench import load
from bench.client import Client
from bench.dirty_logs import OTHER_TOPIC
from bench.figures import Figure
from bench.frames import Frames, RotatingFrames, request_frame
from bench.groups import RunForm
from bench.processes import cpu_time_with_children
from bench.start import compile_packages
from bench.subjects import Bench, RunningBroker, Server, remove_server
from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

COMMITS: Final = 5_000_000
COMMITS_QUICK: Final = 60_000
COMMITTED_TOPIC: Final = "committed"
GROUPS_COUNT: Final = 1_000
PARTITIONS_COUNT: Final = 10
"""The number of partitions to which each group commits, one after the other."""
CONNECTIONS: Final = 4
IN_FLIGHT: Final = 20
COMMITS_PER_PIECE: Final = 20_000
"""The number of commits between two measurements of the disk usage."""
COMMIT_VERSION: Final = 8
COMMITTED_OFFSET: Final = 123_456
SEGMENT_SIZE: Final = 2 << 20
SEGMENT_SIZE_QUICK: Final = 1 << 20
"""The active segment is never cleaned, so small segments are used: with the default of 100 MiB, up to 100 MiB of each
partition would stay.
"""
BACKOFF_MS: Final = 1_000
SETTLING_S: Final = 15.0
"""The time after the last commit in which the cleaner finishes and deleted segments are removed."""
SETTLING_QUICK_S: Final = 5.0
LOADED_S_MAX: Final = 60.0


class CommitRun(NamedTuple):
    """The result of one run. Sizes are in MB and include all files of the topic's partitions."""

    rate: float
    cpu_us: float
    size: float
    size_max: float
    """The largest size that was measured during the commits."""
    loaded_s: float
    started_s: float
    """The time from exec until all groups are loaded."""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the brokers in turns. Each has directories of its own."""
    compile_packages()
    runs: dict[str, list[CommitRun]] = {}
    for _ in range(form.rounds):
        for name in bench.names:
            server = bench.new_server(name, extra=broker_settings(is_quick=form.is_quick))
            server.format()
            run = _run(server, is_quick=form.is_quick)
            remove_server(server)
            told = f"{run.rate:,.0f} commits/s; {run.size:.1f} MB on disk, at most {run.size_max:.1f} MB meanwhile"
            print(f"  compacted offsets {name}: {told}; loaded in {run.loaded_s:.3f} s", flush=True)
            runs.setdefault(name, []).append(run)

    def values(field: str) -> dict[str, list[float]]:
        return {name: [getattr(run, field) for run in mine] for name, mine in runs.items()}

    subject = "__consumer_offsets after 5 million commits by 1,000 groups"
    note = (
        f"{COMMITS_QUICK if form.is_quick else COMMITS:,} OffsetCommit requests of one offset each, to"
        f" {PARTITIONS_COUNT} partitions a group; 4 partitions, {_segment_size(is_quick=form.is_quick):,}-byte segments"
    )
    return [
        Figure(f"{subject}: bytes on disk", "MB", values("size"), note=note),
        Figure(f"{subject}: bytes on disk meanwhile, at most", "MB", values("size_max")),
        Figure(f"{subject}: rate", "commits/s", values("rate"), less_is_better=False),
        Figure(f"{subject}: user + system CPU of a commit", "us", values("cpu_us"), note="with the log cleaner's"),
        Figure(
            "5 million commits by 1,000 groups, compacted: loaded",
            "s",
            values("loaded_s"),
            note="from the first acknowledged produce after a clean stop until every group answers",
        ),
        Figure("5 million commits by 1,000 groups, compacted: exec until loaded", "s", values("started_s")),
    ]


def broker_settings(*, is_quick: bool) -> tuple[str, ...]:
    segment_size = _segment_size(is_quick=is_quick)
    return (f"log.cleaner.backoff.ms={BACKOFF_MS}", f"offsets.topic.segment.bytes={segment_size}")


def _segment_size(*, is_quick: bool) -> int:
    return SEGMENT_SIZE_QUICK if is_quick else SEGMENT_SIZE


def _run(server: Server, *, is_quick: bool) -> CommitRun:
    commits = COMMITS_QUICK if is_quick else COMMITS
    with RunningBroker(server) as running:
        client = running.connect()
        client.create_topic(OTHER_TOPIC)
        create_committed_topic(client)
        for number in range(GROUPS_COUNT):
            commit_with_retries(client, group_name(number))
        frames = commit_frames()
        cpu_before, began = cpu_time_with_children(running.pid), time.perf_counter()
        size_max = 0.0
        for _ in range(commits // COMMITS_PER_PIECE):
            load.run_load(
                server.port,
                frames,
                in_flight=IN_FLIGHT,
                requests=COMMITS_PER_PIECE,
                error_position=commit_error_position(),
            )
            size_max = max(size_max, _size_mb(server))
        rate = commits / (time.perf_counter() - began)
        time.sleep(SETTLING_QUICK_S if is_quick else SETTLING_S)
        cpu_us = (cpu_time_with_children(running.pid) - cpu_before) / commits * 1e6
        size = _size_mb(server)
    with RunningBroker(server) as running:
        client = running.connect()
        client.produce_with_retries(OTHER_TOPIC)
        began = time.perf_counter()
        wait_until_loaded(client)
        ended = time.perf_counter()
        return CommitRun(rate, cpu_us, size, size_max, ended - began, ended - running.started)


def create_committed_topic(client: Client) -> None:
    """Create the topic of the commits, because a commit to a partition that does not exist is refused."""
    topic = CreatableTopic(name=COMMITTED_TOPIC, num_partitions=PARTITIONS_COUNT, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse, 5).topics[0]
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def group_name(number: int) -> str:
    """Return the name of a group. All names have the same length, so that the requests have the same size."""
    return f"group-{number:04}"


def commit_request(group: str, partition: int) -> OffsetCommitRequest:
    """Make an OffsetCommit of a consumer that is not a member of the group."""
    committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=COMMITTED_OFFSET)
    topics = [OffsetCommitRequestTopic(name=COMMITTED_TOPIC, partitions=[committed])]
    return OffsetCommitRequest(group_id=group, member_id="", topics=topics)


def commit_frames() -> list[Frames]:
    """Make the encoded commits of each connection: those of every group for each partition. The connections begin with
    different groups.
    """
    frames = [
        request_frame(commit_request(group_name(number), partition), COMMIT_VERSION)
        for partition in range(PARTITIONS_COUNT)
        for number in range(GROUPS_COUNT)
    ]
    return [RotatingFrames(frames, index * len(frames) // CONNECTIONS) for index in range(CONNECTIONS)]


def commit_error_position() -> int:
    """Return the position of the error code in a reply: after size, correlation id, tags, throttle time, topic and
    index.
    """
    return 4 + 4 + 1 + 4 + 1 + 1 + len(COMMITTED_TOPIC) + 1 + 4


def commit_with_retries(client: Client, group: str) -> None:
    """Find the coordinator, which creates the topic, and repeat the commit until the coordinator has loaded."""
    client.ask(FindCoordinatorRequest(coordinator_keys=[group]), FindCoordinatorResponse, 4)
    deadline = time.monotonic() + LOADED_S_MAX
    while time.monotonic() < deadline:
        answer = client.ask(commit_request(group, 0), OffsetCommitResponse, COMMIT_VERSION)
        if (error := answer.topics[0].partitions[0].error_code) == ErrorCode.NONE:
            return
        time.sleep(0.02)
    raise AssertionError(f"the coordinator of {group} does not commit: error {error}")


def wait_until_loaded(client: Client) -> None:
    """Wait until the coordinator returns a committed offset for every group."""
    topics = [OffsetFetchRequestTopics(name=COMMITTED_TOPIC, partition_indexes=[0])]
    left = [group_name(number) for number in range(GROUPS_COUNT)]
    deadline = time.monotonic() + LOADED_S_MAX
    while left:
        assert time.monotonic() < deadline, f"the coordinators of {len(left)} groups do not answer"
        groups = [OffsetFetchRequestGroup(group_id=group, topics=topics) for group in left]
        answers = client.ask(OffsetFetchRequest(groups=groups), OffsetFetchResponse, 8).groups
        left = [answer.group_id for answer in answers if answer.error_code != ErrorCode.NONE]
        for answer in answers:
            if answer.error_code == ErrorCode.NONE:
                offset = answer.topics[0].partitions[0].committed_offset
                assert offset == COMMITTED_OFFSET, f"{answer.group_id} has the offset {offset}"


def _size_mb(server: Server) -> float:
    """Return the size (MB) of the topic's files. Files that are deleted during the count are left out."""
    size = 0
    for path in Path(server.data).glob(f"{GROUP_METADATA_TOPIC}-*/*"):
        try:
            size += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return size / 1e6
