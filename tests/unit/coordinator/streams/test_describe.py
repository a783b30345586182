"""StreamsGroupDescribe: what operators are told of a group."""

from __future__ import annotations

from moldau.protocol.messages.streams_group_describe import Assignment, KeyValue, TaskIds
from moldau.protocol.messages.streams_group_heartbeat import Endpoint
from moldau.protocol.messages.streams_group_heartbeat import KeyValue as Tag
from tests.support.streams_stage import StreamsStage, subtopology, topology


def test_a_stable_group() -> None:
    stage = StreamsStage({"in": 2, "c": 2})
    stage.join(
        "a",
        "P",
        topology=topology(subtopology("0", ["in"], "c"), epoch=3),
        rack_id="r",
        user_endpoint=Endpoint(host="h", port=7),
        client_tags=[Tag(key="zone", value="z")],
    )
    stage.heartbeat("a", 2)
    described = stage.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
    assert described.topology is not None and described.topology.epoch == 3
    (described_subtopology,) = described.topology.subtopologies or []
    assert described_subtopology.source_topics == ["in"]
    assert [(topic.name, topic.partitions) for topic in described_subtopology.state_changelog_topics] == [("c", 2)]
    (member,) = described.members
    assert (member.member_id, member.member_epoch, member.process_id, member.topology_epoch) == ("a", 2, "P", 3)
    assert (member.client_id, member.client_host, member.rack_id) == ("cli", "/127.0.0.1", "r")
    assert member.client_tags == [KeyValue(key="zone", value="z")]
    assert member.user_endpoint is not None and member.user_endpoint.port == 7
    every = Assignment(active_tasks=[TaskIds(subtopology_id="0", partitions=[0, 1])])
    assert member.assignment == member.target_assignment == every


def test_a_group_that_is_not_ready_is_described_as_it_was_sent() -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a", topology=topology(subtopology("0", ["in"], "c")))
    described = stage.describe()
    assert described.group_state == "NotReady"
    assert described.topology is not None
    (described_subtopology,) = described.topology.subtopologies or []
    assert described_subtopology.state_changelog_topics[0].partitions == 0


def test_no_group() -> None:
    described = StreamsStage({}).describe("nope")
    assert (described.error_code, described.error_message) == (69, "Group nope not found.")
    assert described.group_id == "nope" and described.topology is None
