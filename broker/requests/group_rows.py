"""The rows of the APIs of groups and their offsets in the table of APIs (`table.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.requests import authorization, handlers
from moldau.broker.requests.api import api
from moldau.broker.requests.parts import LIGHT_SIZE, RECORDS_SIZE, ListPath, Parts, cut
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.controller.topics.new_partitions import NEW_PARTITIONS_MAX
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest
from moldau.protocol.messages.leave_group import LeaveGroupRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest
from moldau.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from moldau.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from moldau.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from moldau.broker.requests.authorization import group_rules  # noqa: F401  the rows name it through its package
    from moldau.broker.requests.handlers import (  # noqa: F401  the rows name them through their package
        consumer_group_describe,
        consumer_group_heartbeat,
        delete_groups,
        describe_groups,
        heartbeat,
        join_group,
        leave_group,
        list_groups,
        offset_commit,
        offset_delete,
        offset_fetch,
        streams_group_describe,
        streams_group_heartbeat,
        streams_group_topology_description_update,
        sync_group,
    )

TASK_ROLES: Final = ("active", "standby", "warmup")
MEMBER_TOPICS_MAX: Final = 2 * ENTRIES_MAX
"""The most topics that a member of a group may name: its heartbeat is one step."""
TASKS_MAX: Final = 10 * ENTRIES_MAX
"""The most tasks that a member of a streams group may report in one role."""
SUBTOPOLOGY_LISTS: Final = (
    "source_topics",
    "source_topic_regex",
    "state_changelog_topics",
    "state_changelog_topics.topic_configs",
    "repartition_sink_topics",
    "repartition_source_topics",
    "repartition_source_topics.topic_configs",
    "copartition_groups",
    "copartition_groups.source_topics",
    "copartition_groups.source_topic_regex",
    "copartition_groups.repartition_source_topics",
)

NODE_LISTS: Final = ("source_topics", "stores", "successors")
"""The lists of a node in the description of a topology."""

GROUP_ROWS: Final = (
    api(
        StreamsGroupHeartbeatRequest,
        broker=lambda: handlers.streams_group_heartbeat.handle,
        rule=lambda: authorization.group_rules.MEMBER,
        bounds={
            "topology.subtopologies": ENTRIES_MAX,
            **{f"topology.subtopologies.{part}": MEMBER_TOPICS_MAX for part in SUBTOPOLOGY_LISTS},
            **{f"{role}_tasks": ENTRIES_MAX for role in TASK_ROLES},
            **{f"{role}_tasks.partitions": TASKS_MAX for role in TASK_ROLES},
            **dict.fromkeys(("client_tags", "task_offsets", "task_end_offsets"), ENTRIES_MAX),
        },
    ),
    api(
        StreamsGroupDescribeRequest,
        broker=lambda: handlers.streams_group_describe.handle,
        rule=lambda: authorization.group_rules.DESCRIBE_STREAMS_GROUPS,
        parts=cut("group_ids", "groups"),
    ),
    api(
        StreamsGroupTopologyDescriptionUpdateRequest,
        broker=lambda: handlers.streams_group_topology_description_update.handle,
        rule=lambda: authorization.group_rules.MEMBER,
        bounds={
            f"topology_description.{part}": ENTRIES_MAX
            for part in (
                "subtopologies",
                "subtopologies.nodes",
                *(f"subtopologies.nodes.{each}" for each in NODE_LISTS),
                "global_stores",
                *(f"global_stores.{node}.{each}" for node in ("source", "processor") for each in NODE_LISTS),
            )
        },
    ),
    api(
        OffsetCommitRequest,
        broker=lambda: handlers.offset_commit.handle,
        rule=lambda: authorization.group_rules.OFFSET_COMMIT,
        parts=cut("topics.partitions", size=RECORDS_SIZE),
    ),
    api(
        OffsetFetchRequest,
        broker=lambda: handlers.offset_fetch.handle,
        rule=lambda: authorization.group_rules.offset_fetch,
        parts=Parts(
            (
                ListPath("groups.topics.partition_indexes", "groups.topics.partitions"),
                ListPath("topics.partition_indexes", "topics.partitions"),
            ),
            size=LIGHT_SIZE,
        ),
    ),
    api(
        JoinGroupRequest,
        broker=lambda: handlers.join_group.handle,
        rule=lambda: authorization.group_rules.MEMBER,
        bounds={"protocols": ENTRIES_MAX},
    ),
    api(HeartbeatRequest, broker=lambda: handlers.heartbeat.handle, rule=lambda: authorization.group_rules.MEMBER),
    api(
        LeaveGroupRequest,
        broker=lambda: handlers.leave_group.handle,
        rule=lambda: authorization.group_rules.MEMBER,
        parts=cut("members"),
    ),
    api(
        SyncGroupRequest,
        broker=lambda: handlers.sync_group.handle,
        rule=lambda: authorization.group_rules.sync_group,
        one_pass={
            "assignments": "the assignments become those of the members, of which group.max.size bounds the number"
        },
    ),
    api(
        DescribeGroupsRequest,
        broker=lambda: handlers.describe_groups.handle,
        rule=lambda: authorization.group_rules.DESCRIBE_GROUPS,
        parts=cut("groups", is_distinct=True),
    ),
    api(
        ConsumerGroupHeartbeatRequest,
        broker=lambda: handlers.consumer_group_heartbeat.handle,
        rule=lambda: authorization.group_rules.CONSUMER_GROUP_HEARTBEAT,
        bounds={
            "subscribed_topic_names": MEMBER_TOPICS_MAX,
            "topic_partitions": MEMBER_TOPICS_MAX,
            "topic_partitions.partitions": NEW_PARTITIONS_MAX,
        },
    ),
    api(
        ConsumerGroupDescribeRequest,
        broker=lambda: handlers.consumer_group_describe.handle,
        rule=lambda: authorization.group_rules.CONSUMER_GROUP_DESCRIBE,
        parts=cut("group_ids", "groups", is_distinct=True),
    ),
    api(
        ListGroupsRequest,
        broker=lambda: handlers.list_groups.handle,
        rule=lambda: authorization.group_rules.LIST_GROUPS,
        bounds={"states_filter": ENTRIES_MAX, "types_filter": ENTRIES_MAX},
    ),
    api(
        DeleteGroupsRequest,
        broker=lambda: handlers.delete_groups.handle,
        rule=lambda: authorization.group_rules.DELETE_GROUPS,
        parts=cut("groups_names", "results"),
    ),
    api(
        OffsetDeleteRequest,
        broker=lambda: handlers.offset_delete.handle,
        rule=lambda: authorization.group_rules.OFFSET_DELETE,
        parts=cut("topics.partitions", size=RECORDS_SIZE),
    ),
)
