"""Heartbeats of streams groups: joining, tasks that move, epochs, statuses, timers, and what is refused."""

from __future__ import annotations

import pytest

from moldau.coordinator.group.kind_settings import StreamsGroupSettings
from moldau.coordinator.streams.configured_topology import StatusCode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from tests.support.streams_stage import StreamsStage, group_in, image_of, subtopology, tasks, topology

DELAYED = StreamsGroupSettings(initial_rebalance_delay_ms=3_000, assignment_interval_ms=1_000)


def active(response: StreamsGroupHeartbeatResponse) -> list[int] | None:
    """The active tasks of subtopology 0; None: the answer has no assignment."""
    if response.active_tasks is None:
        return None
    return [partition for each in response.active_tasks for partition in each.partitions]


def codes(response: StreamsGroupHeartbeatResponse) -> list[int]:
    return [status.status_code for status in response.status or ()]


def two_members() -> StreamsStage:
    """Members `a` and `b` with two tasks each, both at epoch 3."""
    stage = StreamsStage({"in": 4})
    assert active(stage.join("a")) == [0, 1, 2, 3]
    stage.join("b")
    assert active(stage.report("a", 2, 0, 1, 2, 3)) == [0, 1]
    assert active(stage.report("a", 2, 0, 1)) is None
    assert active(stage.report("b", 3)) == [2, 3]
    assert stage.state == "Stable"
    return stage


def test_the_first_member_gets_all_tasks() -> None:
    stage = StreamsStage({"in": 3})
    response = stage.join("a")
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 2, 5_000)
    assert active(response) == [0, 1, 2]
    assert response.standby_tasks == [] and response.warmup_tasks == []
    assert response.status == []
    assert stage.state == "Stable"


def test_a_heartbeat_without_news_writes_nothing() -> None:
    stage = StreamsStage({"in": 3})
    stage.join("a")
    size = len(stage.records)
    response = stage.heartbeat("a", 2)
    assert response.member_epoch == 2 and response.active_tasks is None
    assert len(stage.records) == size


def test_tasks_move_to_a_new_member_once_they_are_revoked() -> None:
    stage = StreamsStage({"in": 4})
    stage.join("a")
    joined = stage.join("b")
    assert (joined.member_epoch, active(joined)) == (3, [])
    assert stage.state == "Reconciling"
    revoking = stage.report("a", 2, 0, 1, 2, 3)
    assert (revoking.member_epoch, active(revoking)) == (2, [0, 1])
    assert active(stage.report("b", 3)) is None
    assert stage.report("a", 2, 0, 1).member_epoch == 3
    assert active(stage.report("b", 3)) == [2, 3]
    assert stage.state == "Stable"


def test_a_member_that_leaves_gives_its_tasks_to_the_others() -> None:
    stage = two_members()
    response = stage.leave("b")
    assert (response.error_code, response.member_epoch, response.status) == (0, -1, [])
    assert stage.state == "Assigning"
    assert active(stage.report("a", 3, 0, 1)) == [0, 1, 2, 3]
    assert stage.state == "Stable"


def test_the_last_member_leaves_an_empty_group() -> None:
    stage = StreamsStage({"in": 3})
    stage.join("a")
    stage.leave("a")
    assert stage.state == "Empty"
    assert active(stage.join("a")) == [0, 1, 2]


def test_a_session_expires_without_heartbeats() -> None:
    stage = two_members()
    stage.wait(30_000)
    stage.report("a", 3, 0, 1)
    stage.wait(15_000)
    assert set(stage.group.members) == {"a"}
    assert stage.heartbeat("b", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_is_removed() -> None:
    stage = StreamsStage({"in": 4})
    stage.join("a")
    stage.join("b")
    stage.report("a", 2, 0, 1, 2, 3)
    stage.wait(29_999)
    stage.report("a", 2, 0, 1, 2, 3)
    assert set(stage.group.members) == {"a", "b"}
    stage.wait(1)
    assert set(stage.group.members) == {"b"}


def test_a_revocation_in_time_ends_its_timer() -> None:
    stage = two_members()
    stage.wait(20_000)
    stage.report("a", 3, 0, 1)
    stage.report("b", 3, 2, 3)
    stage.wait(20_000)
    assert set(stage.group.members) == {"a", "b"}


def test_an_empty_group_gives_its_place_to_a_classic_one() -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a")
    assert stage.join_classic().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stage.leave("a")
    assert stage.join_classic().error_code == ErrorCode.NONE
    group = stage.shard.group("app")
    assert group is not None and group.type_name == "classic"
    assert stage.join("a").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_stays_if_its_tombstones_are_refused() -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a")
    stage.leave("a")
    before = image_of(stage.group)
    stage.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.join_classic().error_code == ErrorCode.NOT_COORDINATOR
    assert image_of(stage.group) == before


# Epochs


def test_the_epoch_before_is_accepted_of_a_member_that_owns_no_more_than_it_was_given() -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a")
    stage.join("b")
    stage.report("a", 2, 0, 1)
    assert stage.report("a", 2, 0).member_epoch == 3
    again = stage.report("a", 2, 0)
    assert (again.error_code, again.member_epoch) == (0, 3)
    assert stage.report("a", 2, 0, 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert stage.heartbeat("a", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(("epoch", "comparison"), [(1, "smaller"), (9, "greater")])
def test_other_epochs_fence_the_member(epoch: int, comparison: str) -> None:
    stage = two_members()
    before = image_of(stage.group)
    response = stage.report("a", epoch, 0, 1)
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert response.error_message == (
        f"The streams group member has a {comparison} member epoch ({epoch}) than the one known by the group "
        "coordinator (3). The member must abandon all its partitions and rejoin."
    )
    assert image_of(stage.group) == before


def test_unknown_groups_and_members() -> None:
    stage = StreamsStage({"in": 2})
    response = stage.heartbeat("a", 3)
    assert (response.error_code, response.error_message) == (69, "Streams group app not found.")
    response = stage.leave("a")
    assert (response.error_code, response.error_message) == (69, "Group app not found.")
    stage.join("a")
    response = stage.leave("b")
    assert (response.error_code, response.error_message) == (25, "Member b is not a member of group app.")


def test_a_group_is_full() -> None:
    stage = StreamsStage(
        {"in": 2}, StreamsGroupSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0, max_size=1)
    )
    stage.join("a")
    response = stage.join("b")
    assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert response.error_message == "The streams group has reached its maximum capacity of 1 members."


# Topologies and topics


def test_a_missing_source_topic_is_told_until_it_is_there() -> None:
    stage = StreamsStage({})
    response = stage.join("a")
    assert codes(response) == [StatusCode.MISSING_SOURCE_TOPICS]
    assert active(response) == []
    assert stage.state == "NotReady"
    stage.set_topics({"in": 2})
    response = stage.report("a", response.member_epoch)
    assert codes(response) == [] and active(response) == [0, 1]
    assert stage.state == "Stable"


def test_missing_internal_topics_are_given_to_the_shell() -> None:
    stage = StreamsStage({"in": 2})
    response = stage.join("a", topology=topology(subtopology("0", ["in"], "app-store-changelog")))
    assert codes(response) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert {name: topic.partitions for name, topic in stage.topics_to_create.items()} == {"app-store-changelog": 2}
    stage.set_topics({"in": 2, "app-store-changelog": 2})
    assert active(stage.report("a", response.member_epoch)) == [0, 1]
    assert not stage.topics_to_create


def test_a_topic_that_grows_gives_new_tasks() -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a")
    stage.set_topics({"in": 3})
    assert active(stage.report("a", 2, 0, 1)) == [0, 1, 2]


def test_metadata_of_other_topics_changes_nothing() -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a")
    size = len(stage.records)
    stage.set_topics({"in": 2, "other": 1})
    stage.report("a", 2, 0, 1)
    assert len(stage.records) == size


def test_a_topology_that_is_refused_by_the_log_is_configured_again() -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a")
    stage.set_topics({"in": 3})
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert stage.report("a", 2, 0, 1).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.refusal = ErrorCode.NONE
    assert active(stage.report("a", 2, 0, 1)) == [0, 1, 2]


def test_a_member_with_an_older_topology_is_told_so() -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a", topology=topology(epoch=1))
    response = stage.join("b", topology=topology(subtopology("0", ["other"]), epoch=0))
    assert response.error_code == 0
    assert [(status.status_code, status.status_detail) for status in response.status or ()] == [
        (StatusCode.STALE_TOPOLOGY, "The member's topology epoch 0 is behind the group's topology epoch 1.")
    ]


@pytest.mark.parametrize("epoch", [1, 2])
def test_another_topology_of_the_same_or_a_later_epoch_is_refused(epoch: int) -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a", topology=topology(epoch=1))
    response = stage.join("b", topology=topology(subtopology("0", ["other"]), epoch=epoch))
    assert (response.error_code, response.error_message) == (42, "Topology updates are not supported yet.")
    assert set(stage.group.members) == {"a"}


def test_a_shutdown_is_told_to_all_members() -> None:
    stage = two_members()
    for response in (stage.report("a", 3, 0, 1, shutdown_application=True), stage.report("b", 3, 2, 3)):
        assert [(status.status_code, status.status_detail) for status in response.status or ()] == [
            (
                StatusCode.SHUTDOWN_APPLICATION,
                "Streams group member a encountered a fatal error and requested a shutdown for the entire application.",
            )
        ]
    stage.leave("a")
    stage.leave("b")
    assert codes(stage.join("a")) == []


def test_a_leaving_member_may_ask_for_the_shutdown() -> None:
    stage = two_members()
    stage.leave("a", shutdown_application=True)
    assert codes(stage.report("b", 3, 2, 3)) == [StatusCode.SHUTDOWN_APPLICATION]


# Standbys and settings


def test_standbys_are_assigned_by_the_setting_of_the_group() -> None:
    stage = StreamsStage({"in": 2, "c": 2})
    with_store = topology(subtopology("0", ["in"], "c"))
    stage.join("a", topology=with_store)
    stage.join("b", topology=with_store)
    stage.report("a", 2, 0, 1)
    stage.report("a", 2, 0)
    stage.report("b", 3)
    stage.set_topics({"in": 2, "c": 2}, streams_num_standby_replicas="1")
    told = stage.report("a", 3, 0)
    assert told.standby_tasks == [TaskIds(subtopology_id="0", partitions=[1])]
    assert stage.report("b", 3, 1).standby_tasks == [TaskIds(subtopology_id="0", partitions=[0])]
    assert stage.group.assignment_configs == {"num.standby.replicas": "1"}


def test_settings_of_the_group_come_before_the_brokers() -> None:
    stage = StreamsStage({"in": 2})
    stage.set_topics({"in": 2}, streams_heartbeat_interval_ms="7000", streams_session_timeout_ms="50000")
    assert stage.join("a").heartbeat_interval_ms == 7_000
    stage.wait(49_999)
    assert stage.group.members
    stage.wait(1)
    assert not stage.group.members


# Delays


def test_the_first_assignment_waits_for_more_members() -> None:
    stage = StreamsStage({"in": 2}, DELAYED)
    first = stage.join("a")
    assert (first.member_epoch, active(first), codes(first)) == (1, [], [StatusCode.ASSIGNMENT_DELAYED])
    assert codes(stage.join("b")) == [StatusCode.ASSIGNMENT_DELAYED]
    stage.wait(3_000)
    assert stage.group.assignment_epoch == 3
    assert active(stage.report("a", 1)) == [0]
    assert active(stage.report("b", 1)) == [1]


def test_the_next_heartbeat_assigns_where_the_delay_found_no_topology() -> None:
    """Of a group that one heartbeat created, only the records remain."""
    stage = StreamsStage({"in": 2}, DELAYED)
    stage.join("a")
    stage.wait(3_000)
    assert stage.group.assignment_epoch == 1
    assert active(stage.report("a", 1)) == [0, 1]


def test_targets_are_computed_once_in_an_interval() -> None:
    stage = StreamsStage({"in": 2}, StreamsGroupSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=1_000))
    stage.join("a")
    stage.wait(999)
    late = stage.join("b")
    assert [status.status_detail for status in late.status or ()] == [
        "Assignment delayed due to the configured assignment interval."
    ]
    assert stage.group.assignment_epoch == 2
    assert late.heartbeat_interval_ms == 500
    stage.wait(1)
    told = stage.report("b", late.member_epoch)
    assert (codes(told), told.heartbeat_interval_ms) == ([], 500), "a has yet to release a task"
    assert stage.group.assignment_epoch == 3


# Endpoints


def test_members_hear_of_the_endpoints_of_others() -> None:
    stage = StreamsStage({"in": 2})
    here = Endpoint(host="here", port=1)
    first = stage.join("a", user_endpoint=here)
    assert first.endpoint_information_epoch == 0, "the group did not exist before"
    assert first.partitions_by_user_endpoint is not None
    (served,) = first.partitions_by_user_endpoint
    assert (served.user_endpoint, [(each.topic, each.partitions) for each in served.active_partitions]) == (
        here,
        [("in", [0, 1])],
    )
    second = stage.join("b", user_endpoint=Endpoint(host="there", port=2))
    assert second.endpoint_information_epoch == 1
    assert [each.user_endpoint.host for each in second.partitions_by_user_endpoint or ()] == ["here", "there"]
    again = stage.report("b", 3, endpoint_information_epoch=1)
    assert again.partitions_by_user_endpoint is None


# What is refused


def with_task_offsets() -> dict[str, object]:
    return {"task_offsets": [TaskOffset(subtopology_id="0", partition=0, offset=1)]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        (with_task_offsets(), "TaskOffsets are not supported yet."),
        ({"task_end_offsets": []}, "TaskEndOffsets are not supported yet."),
        ({"warmup_tasks": tasks(0)}, "WarmupTasks are not supported yet."),
        (
            {"topology": topology(Subtopology(subtopology_id="0", source_topic_regex=["a.*"]))},
            "Regular expressions for source topics are not supported yet.",
        ),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"active_tasks": None}, "ActiveTasks must be empty when (re-)joining."),
        ({"active_tasks": tasks(0)}, "ActiveTasks must be empty when (re-)joining."),
        ({"standby_tasks": tasks(0)}, "StandbyTasks must be empty when (re-)joining."),
        ({"warmup_tasks": None}, "WarmupTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
    ],
)
def test_a_join_that_is_invalid(fields: dict[str, object], message: str) -> None:
    stage = StreamsStage({"in": 2})
    member_id = str(fields.pop("member_id", "a"))
    response = stage.join(member_id, **fields)  # type: ignore[arg-type]
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert not stage.records


@pytest.mark.parametrize(
    ("epoch", "fields", "message"),
    [
        (-2, {}, "InstanceId can't be null."),
        (-3, {}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        (2, {"active_tasks": []}, "If one task-type is non-null, all must be non-null."),
        (2, {"topology": topology()}, "Topology can only be provided when (re-)joining."),
        (
            2,
            {"active_tasks": tasks(0, subtopology_id="7"), "standby_tasks": [], "warmup_tasks": []},
            "Subtopology 7 does not exist in the topology.",
        ),
        (
            2,
            {"active_tasks": tasks(5), "standby_tasks": [], "warmup_tasks": []},
            "Task 5 for subtopology 0 is invalid. Number of tasks for this subtopology: 2",
        ),
    ],
)
def test_a_heartbeat_that_is_invalid(epoch: int, fields: dict[str, object], message: str) -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a")
    before = len(stage.records)
    response = stage.heartbeat("a", epoch, **fields)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert len(stage.records) == before


CHANGELOG = TopicInfo(name="c", partitions=3, replication_factor=0)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (
            topology(Subtopology(subtopology_id="0", source_topics=["in"], state_changelog_topics=[CHANGELOG])),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Changelog topic c must have an undefined partition count, but it is set to 3.",
        ),
        (
            topology(Subtopology(subtopology_id="0")),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "No source topics found for subtopology 0",
        ),
        (topology(subtopology("0"), subtopology("0")), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (topology(epoch=-1), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (
            topology(
                Subtopology(
                    subtopology_id="0",
                    source_topics=["in"],
                    copartition_groups=[CopartitionGroup(source_topics=[4])],
                )
            ),
            ErrorCode.UNKNOWN_SERVER_ERROR,
            None,
        ),
    ],
)
def test_a_topology_without_sense_changes_nothing(wrong: object, error: ErrorCode, message: str | None) -> None:
    stage = StreamsStage({"in": 2})
    response = stage.join("a", topology=wrong)
    assert (response.error_code, response.error_message) == (error, message)
    assert not stage.records


def test_a_tag_that_is_given_twice_is_refused() -> None:
    stage = StreamsStage({"in": 2})
    doubled = [KeyValue(key="zone", value="1"), KeyValue(key="zone", value="2")]
    assert stage.join("a", client_tags=doubled).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


# The log


def test_a_new_coordinator_goes_on_with_the_group() -> None:
    stage = two_members()
    before = image_of(stage.group)
    stage.take_over()
    assert image_of(stage.group) == before
    size = len(stage.records)
    assert active(stage.report("a", 3, 0, 1)) is None
    assert len(stage.records) == size, "nothing has changed, and nothing is assigned anew"


def test_a_new_coordinator_begins_the_sessions() -> None:
    stage = two_members()
    stage.take_over()
    stage.wait(45_000)
    assert not stage.group.members


def test_a_write_that_fails_changes_nothing() -> None:
    stage = two_members()
    before = image_of(stage.group)
    stage.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.join("c").error_code == ErrorCode.NOT_COORDINATOR
    assert image_of(stage.group) == before


def test_a_deleted_group_leaves_nothing_in_the_log() -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a")
    stage.leave("a")
    group = group_in(stage.shard)
    for change in group.tombstones():
        stage.shard.replay(change, len(stage.records))
    assert stage.shard.group("app") is None
    assert stage.heartbeat("a", 2).error_code == ErrorCode.GROUP_ID_NOT_FOUND
