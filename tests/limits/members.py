"""Long lists of members of groups: each list as long as it may be, with topics and partitions that exist.

`lists.py` sends names that do not exist, which are soon answered. Here a member of each kind joins with as many topics
as it may, owns, fetches and acknowledges as many partitions, and an administrator describes, sets and deletes the
offsets of as many.
"""

from __future__ import annotations

import time
from typing import Any, Final, TypeVar, cast

from bench.client import Client
from bench.frames import request_frame
from moldau.broker.apis.coordinator import MEMBER_TOPICS_MAX
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import (
    alter_share_group_offsets as alter,
)
from moldau.protocol.messages import (
    consumer_group_heartbeat as consumer,
)
from moldau.protocol.messages import (
    describe_share_group_offsets as describe,
)
from moldau.protocol.messages import (
    share_acknowledge,
    share_fetch,
)
from moldau.protocol.messages import (
    share_group_heartbeat as share,
)
from moldau.protocol.messages import (
    streams_group_heartbeat as streams,
)
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from moldau.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from moldau.replication.share.sessions import SESSION_PARTITIONS_MAX
from tests.limits.lists import BASELINE_COUNT, HONEST_P99_MS_MAX, HONEST_SLOWEST_MS_MAX
from tests.limits.stage import Stage

SETTINGS: Final = (
    "offsets.topic.num.partitions=2",
    "share.coordinator.state.topic.num.partitions=2",
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
)
WIDE: Final = "wide"
"""A topic with as many partitions as a share session may have."""
MEMBER: Final = "member-0123456789"
GROUPS: Final = ("of-consumers", "of-sharers", "of-streams")
Response = TypeVar("Response")


class Members:
    """What the members of the three groups and their administrator ask, one request after the other."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._client = Client(stage.port)
        self.names = [f"topic-{number:05}" for number in range(MEMBER_TOPICS_MAX)]
        self.slowest: list[tuple[float, str]] = []

    def create_topics(self) -> None:
        """All of them, and the coordinators."""
        wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in self.names]
        wide = CreatableTopic(name=WIDE, num_partitions=SESSION_PARTITIONS_MAX, replication_factor=1)
        for first in range(0, MEMBER_TOPICS_MAX, ENTRIES_MAX):
            request = CreateTopicsRequest(topics=wanted[first : first + ENTRIES_MAX], timeout_ms=60_000)
            created = self._client.ask(request, CreateTopicsResponse, 5)
            self._stage.check(not any(each.error_code for each in created.topics), "a topic is not created")
        created = self._client.ask(CreateTopicsRequest(topics=[wide], timeout_ms=60_000), CreateTopicsResponse, 5)
        self._stage.check(not created.topics[0].error_code, f"the wide topic is not created: {created.topics[0]}")
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in (*self.names, WIDE)])
        found = self._client.ask(asked, MetadataResponse, 12)
        *ids, self.wide = (each.topic_id for each in found.topics)
        self.ids = ids
        wanted_groups = FindCoordinatorRequest(coordinator_keys=[*GROUPS], key_type=0)
        self._stage.eventually("there are coordinators", lambda: self._are_found(wanted_groups))

    def _are_found(self, request: FindCoordinatorRequest) -> bool:
        found = self._client.ask(request, FindCoordinatorResponse, 4).coordinators
        return not any(each.error_code for each in found)

    def ask(self, name: str, request: object, response: type[Response], version: int) -> Response:
        """Ask once; the error of the answer is a failure, and the slowest honest produce meanwhile is noted."""
        first = self._stage.honest_count
        began = time.monotonic()
        frame = request_frame(request, version)
        built_s = time.monotonic() - began
        answer: Any = self._client.ask(request, response, version)
        took_s = time.monotonic() - began - built_s
        self._stage.await_honest(first + 3)
        slowest_ms = self._stage.honest_slowest_ms(first)
        self.slowest.append((slowest_ms, name))
        print(f"  members: {name:54} {took_s:6.2f} s, honest {slowest_ms:5.1f} ms ({len(frame):,} bytes)", flush=True)
        error = ErrorCode(getattr(answer, "error_code", 0))
        self._stage.check(error is ErrorCode.NONE, f"{name} answers {error.name}: {answer!r:.300}")
        return cast("Response", answer)

    # Consumer groups

    def join_consumer_group(self) -> None:
        """Join with all topics; tell all of them as owned; then the partitions of the wide topic; describe; leave."""
        joined = self._heartbeat("joins", 0, subscribed_topic_names=self.names, topic_partitions=[])
        epoch = joined.member_epoch
        owned = [consumer.TopicPartitions(topic_id=each, partitions=[0]) for each in self.ids]
        self._heartbeat("owns a partition of each topic", epoch, topic_partitions=owned)
        self._heartbeat("subscribes to the same again", epoch, subscribed_topic_names=self.names)
        wide = self._heartbeat("subscribes to the wide topic", epoch, subscribed_topic_names=[WIDE])
        epoch = wide.member_epoch
        owned = [consumer.TopicPartitions(topic_id=self.wide, partitions=[*range(SESSION_PARTITIONS_MAX)])]
        self._heartbeat("owns the partitions of the wide topic", epoch, topic_partitions=owned)
        groups = [GROUPS[0]]
        described = ConsumerGroupDescribeRequest(group_ids=groups, include_authorized_operations=False)
        self.ask("ConsumerGroupDescribe of that member", described, ConsumerGroupDescribeResponse, 1)
        self._heartbeat("leaves", -1)

    def _heartbeat(self, name: str, epoch: int, **told: Any) -> Any:
        request = consumer.ConsumerGroupHeartbeatRequest(
            group_id=GROUPS[0],
            member_id=MEMBER,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            **told,
        )
        return self.ask(f"ConsumerGroupHeartbeat: {name}", request, consumer.ConsumerGroupHeartbeatResponse, 1)

    # Share groups

    def join_share_group(self) -> None:
        """Join with as many topics as a member may have; fetch, acknowledge and leave the wide topic; its offsets."""
        names = self.names[:ENTRIES_MAX]
        epoch = self._share_heartbeat("joins", 0, names).member_epoch
        self._share_heartbeat("subscribes to the wide topic", epoch, [WIDE])
        time.sleep(2)  # until the share partitions are initialized
        epoch = self._share_heartbeat("subscribes to it again", epoch, [WIDE]).member_epoch
        self._fetch("of a new session", 0, [])
        batches = [share_fetch.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[2])]
        self._fetch("with acknowledgements", 1, batches)
        acknowledged = share_acknowledge.ShareAcknowledgeRequest(
            group_id=GROUPS[1],
            member_id=MEMBER,
            share_session_epoch=2,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=self.wide,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                share_acknowledge.AcknowledgementBatch(
                                    first_offset=0, last_offset=0, acknowledge_types=[2]
                                )
                            ],
                        )
                        for index in range(SESSION_PARTITIONS_MAX)
                    ],
                )
            ],
        )
        self.ask("ShareAcknowledge", acknowledged, share_acknowledge.ShareAcknowledgeResponse, 2)
        self._fetch("of the last epoch", -1, [])
        described = ShareGroupDescribeRequest(group_ids=[GROUPS[1]], include_authorized_operations=False)
        self.ask("ShareGroupDescribe of that member", described, ShareGroupDescribeResponse, 1)
        self._share_heartbeat("leaves", -1, None)

    def _share_heartbeat(self, name: str, epoch: int, topics: list[str] | None) -> share.ShareGroupHeartbeatResponse:
        request = share.ShareGroupHeartbeatRequest(
            group_id=GROUPS[1], member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=topics
        )
        return self.ask(f"ShareGroupHeartbeat: {name}", request, share.ShareGroupHeartbeatResponse, 1)

    def _fetch(self, name: str, epoch: int, batches: list[share_fetch.AcknowledgementBatch]) -> None:
        partitions = [
            share_fetch.FetchPartition(partition_index=index, acknowledgement_batches=batches)
            for index in range(SESSION_PARTITIONS_MAX)
        ]
        topics = [] if epoch < 0 else [share_fetch.FetchTopic(topic_id=self.wide, partitions=partitions)]
        request = share_fetch.ShareFetchRequest(
            group_id=GROUPS[1],
            member_id=MEMBER,
            share_session_epoch=epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=topics,
        )
        self.ask(f"ShareFetch {name}", request, share_fetch.ShareFetchResponse, 2)

    def administer(self) -> None:
        """The offsets of as many topics, and of the partitions of the wide topic, after the member has left."""
        group = GROUPS[1]
        named = describe.DescribeShareGroupOffsetsRequestTopic(
            topic_name=WIDE, partitions=[*range(SESSION_PARTITIONS_MAX)]
        )
        topics = [
            named,
            *(describe.DescribeShareGroupOffsetsRequestTopic(topic_name=each, partitions=[0]) for each in self.names),
        ]
        asked = describe.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)
        request = describe.DescribeShareGroupOffsetsRequest(groups=[asked])
        self.ask("DescribeShareGroupOffsets", request, describe.DescribeShareGroupOffsetsResponse, 1)
        for name, altered in (
            ("of topics", [self._altered(each, 1) for each in self.names]),
            ("of the wide topic", [self._altered(WIDE, SESSION_PARTITIONS_MAX)]),
        ):
            setting = alter.AlterShareGroupOffsetsRequest(group_id=group, topics=altered)
            self.ask(f"AlterShareGroupOffsets {name}", setting, alter.AlterShareGroupOffsetsResponse, 0)
        gone = [DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in self.names]
        deleting = DeleteShareGroupOffsetsRequest(group_id=group, topics=gone)
        self.ask("DeleteShareGroupOffsets", deleting, DeleteShareGroupOffsetsResponse, 0)

    @staticmethod
    def _altered(name: str, count: int) -> alter.AlterShareGroupOffsetsRequestTopic:
        partitions = [
            alter.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0)
            for index in range(count)
        ]
        return alter.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)

    # Streams groups

    def join_streams_group(self) -> None:
        """Join with as many topics as a topology may have, in as many subtopologies; describe; leave."""
        each = MEMBER_TOPICS_MAX // ENTRIES_MAX
        subtopologies = [
            streams.Subtopology(subtopology_id=f"{number:04}", source_topics=self.names[number * each :][:each])
            for number in range(ENTRIES_MAX)
        ]
        topology = streams.Topology(epoch=0, subtopologies=subtopologies)
        joined = self._streams_heartbeat("joins", 0, topology, [])
        time.sleep(3.5)  # group.streams.initial.rebalance.delay.ms
        joined = self._streams_heartbeat("gets its tasks", joined.member_epoch, None, None)
        tasks = joined.active_tasks
        self._stage.check(bool(tasks), "the member of the streams group has no tasks")
        self._streams_heartbeat("owns them", joined.member_epoch, None, tasks)
        described = StreamsGroupDescribeRequest(group_ids=[GROUPS[2]], include_authorized_operations=False)
        self.ask("StreamsGroupDescribe of that member", described, StreamsGroupDescribeResponse, 1)
        self._streams_heartbeat("leaves", -1, None, None)

    def _streams_heartbeat(
        self, name: str, epoch: int, topology: streams.Topology | None, tasks: list[streams.TaskIds] | None
    ) -> streams.StreamsGroupHeartbeatResponse:
        none: list[streams.TaskIds] | None = None if tasks is None else []
        request = streams.StreamsGroupHeartbeatRequest(
            group_id=GROUPS[2],
            member_id=MEMBER,
            member_epoch=epoch,
            endpoint_information_epoch=0,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            process_id="process" if epoch == 0 else None,
            topology=topology,
            active_tasks=tasks,
            standby_tasks=none,
            warmup_tasks=none,
            shutdown_application=False,
        )
        return self.ask(f"StreamsGroupHeartbeat: {name}", request, streams.StreamsGroupHeartbeatResponse, 1)


def long_lists_of_members(stage: Stage) -> None:
    """Each list as long as it may be, with topics and partitions that exist."""
    members = Members(stage)
    members.create_topics()
    begun = stage.honest_count
    stage.await_honest(begun + BASELINE_COUNT)
    bar_ms = HONEST_P99_MS_MAX + stage.honest_p99_ms(begun)
    begun = stage.honest_count
    for act in (
        members.join_consumer_group,
        members.join_share_group,
        members.administer,
        members.join_streams_group,
    ):
        act()
    held_up = [
        f"{name} {slowest_ms:.0f} ms" for slowest_ms, name in members.slowest if slowest_ms > HONEST_SLOWEST_MS_MAX
    ]
    stage.check(not held_up, f"an honest produce waited beside {', '.join(held_up)}")
    p99_ms = stage.honest_p99_ms(begun)
    print(f"  members: p99 of the honest produces {p99_ms:.1f} ms, bar {bar_ms:.1f}", flush=True)
    stage.check(p99_ms <= bar_ms, f"the p99 of the honest produces is {p99_ms:.0f} ms")
