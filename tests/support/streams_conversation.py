"""A conversation about streams groups, to be held with this broker's coordinator and with Apache Kafka's.

It is a table of the states of a group × the requests about it: each cell has a group of its own, which is brought into
the state and then asked. `python -m tests.support.streams_conversation PORT` holds it with a fresh broker on that port
(`group.initial.rebalance.delay.ms`, `group.streams.initial.rebalance.delay.ms` and
`group.streams.assignment.interval.ms` must be 0; it makes the topics `TOPICS`) and prints the replies as the test keeps
them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from typing import Final

from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from moldau.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest
from tests.support.group_conversation import MAIN, Conversation, Question, Talk, Wire, answer, join_request, prepare

TOPICS: Final[Mapping[str, int]] = {"in": 4, "left": 2, "right": 3, "c": 4}
"""The number of partitions of each topic; `t` with two partitions is there too."""


class StreamsTalk(Conversation):
    """Asks about streams groups. If the order of a reply says nothing, it is sorted."""

    def ask(self, request: object, version: int) -> Generator[Question, object, object]:
        response = yield MAIN, request, version
        self._write(f"{type(request).__name__} v{version}", f"    {in_order(response)!r}")
        return response

    def beat(
        self, group: str, member: str, epoch: int, **fields: object
    ) -> Generator[Question, object, StreamsGroupHeartbeatResponse]:
        response = yield from self.ask(heartbeat(group, member, epoch, **fields), 0)
        assert isinstance(response, StreamsGroupHeartbeatResponse)
        return response

    def join_streams(
        self, group: str, member: str, **fields: object
    ) -> Generator[Question, object, StreamsGroupHeartbeatResponse]:
        return (yield from self.beat(group, member, 0, **(JOIN | {"process_id": f"process of {member}"} | fields)))


def in_order(response: object) -> object:
    if isinstance(response, StreamsGroupHeartbeatResponse):
        for listed in (response.active_tasks, response.standby_tasks, response.warmup_tasks):
            (listed or []).sort(key=lambda each: each.subtopology_id)
        for served in response.partitions_by_user_endpoint or ():
            for topics in (served.active_partitions, served.standby_partitions):
                topics.sort(key=lambda each: each.topic)
    elif isinstance(response, ListGroupsResponse):
        response.groups.sort(key=lambda group: group.group_id)
    elif isinstance(response, StreamsGroupDescribeResponse):
        response.groups.sort(key=lambda group: group.group_id)
        for group in response.groups:
            group.members.sort(key=lambda member: member.member_id)
    return response


def heartbeat(group: str, member: str, epoch: int, **fields: object) -> StreamsGroupHeartbeatRequest:
    values: dict[str, object] = {"endpoint_information_epoch": 0, "shutdown_application": False, **fields}
    return StreamsGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **values)  # type: ignore[arg-type]


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(
        epoch=epoch, subtopologies=list(subtopologies or (Subtopology(subtopology_id="0", source_topics=["in"]),))
    )


def owned(*partitions: int) -> dict[str, object]:
    """The report of a member that owns these active tasks."""
    active = [TaskIds(subtopology_id="0", partitions=list(partitions))] if partitions else []
    return {"active_tasks": active, "standby_tasks": [], "warmup_tasks": []}


JOIN: Final[dict[str, object]] = {
    "rebalance_timeout_ms": 30_000,
    "topology": topology(),
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
}


# The states of a group


def absent(_talk: StreamsTalk, _group: str) -> Talk:
    yield from ()


def simple(talk: StreamsTalk, group: str) -> Talk:
    """Only offsets."""
    yield from talk.commit(group, -1, "", ("in", 0, 1, ""))


def classic(talk: StreamsTalk, group: str) -> Talk:
    """A member of the classic protocol."""
    joined = yield from talk.ask(join_request(group, "", 3, protocols=("range",)), 3)
    assert isinstance(joined, JoinGroupResponse)


def empty(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.join_streams(group, "a")
    yield from talk.beat(group, "a", -1)


def not_ready(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.join_streams(group, "a", topology=topology(Subtopology(subtopology_id="0", source_topics=["nope"])))


def stable(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.join_streams(group, "a")
    yield from talk.beat(group, "a", 2)


def unrevoked(talk: StreamsTalk, group: str) -> Talk:
    """Member `a` has to revoke tasks 2 and 3, for which `b` waits."""
    yield from talk.join_streams(group, "a")
    yield from talk.join_streams(group, "b")
    yield from talk.beat(group, "a", 2, **owned(0, 1, 2, 3))


def assigning(talk: StreamsTalk, group: str) -> Talk:
    """Member `b` has left, and no heartbeat has followed."""
    yield from unrevoked(talk, group)
    yield from talk.beat(group, "b", -1)


STATES: Final = (absent, simple, classic, empty, not_ready, stable, unrevoked, assigning)


# The requests about a group


def describe(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.ask(StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True), 0)


def new_member(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.join_streams(group, "z")
    yield from describe(talk, group)


def same_member_again(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.join_streams(group, "a")
    yield from describe(talk, group)


def later_topology(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.join_streams(group, "z", topology=topology(epoch=3))


def plain(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.beat(group, "a", 2)


def report_all(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.beat(group, "a", 2, **owned(0, 1, 2, 3))


def report_some(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.beat(group, "a", 2, **owned(0, 1))
    yield from talk.beat(group, "a", 2, **owned(0, 1))
    yield from talk.beat(group, "b", 3)
    yield from describe(talk, group)


def stale(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.beat(group, "a", 1, **owned(0))


def future(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.beat(group, "a", 9)


def stranger(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.beat(group, "stranger", 2)


def leave(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.beat(group, "a", -1)
    yield from describe(talk, group)


def stranger_leaves(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.beat(group, "stranger", -1, shutdown_application=True)
    yield from plain(talk, group)


def shut_down(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.beat(group, "a", 2, shutdown_application=True)
    yield from talk.beat(group, "b", 3)


def commits(talk: StreamsTalk, group: str) -> Talk:
    for member, epoch in (("a", 2), ("a", 1), ("a", 9), ("b", 3), ("b", 2), ("z", 2)):
        yield from talk.commit(group, epoch, member, ("in", 0, 1, ""))
    yield from talk.commit(group, 2, "a", ("in", 0, 1, ""), version=8)
    yield from talk.commit(group, -1, "", ("t", 0, 1, ""))


def fetches(talk: StreamsTalk, group: str) -> Talk:
    for member, epoch in ((None, -1), ("a", 2), ("a", 1), ("z", 2)):
        asked = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=None)
        yield from talk.ask(OffsetFetchRequest(groups=[asked]), 9)


def delete_offsets_of(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.delete_offsets(group, ("in", 0), ("t", 0))


def delete(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.ask(DeleteGroupsRequest(groups_names=[group]), 2)
    yield from describe(talk, group)


def classic_requests(talk: StreamsTalk, group: str) -> Talk:
    yield from talk.ask(DescribeGroupsRequest(groups=[group]), 6)
    yield from talk.ask(HeartbeatRequest(group_id=group, generation_id=2, member_id="a"), 4)
    yield from talk.ask(SyncGroupRequest(group_id=group, generation_id=2, member_id="a"), 3)
    yield from talk.ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="a")]), 5)


def classic_join(talk: StreamsTalk, group: str) -> Talk:
    """A join of an old version, which needs no second one."""
    joined = yield from talk.ask(join_request(group, "", 3, protocols=("range",)), 3)
    assert isinstance(joined, JoinGroupResponse)
    yield from describe(talk, group)
    yield from talk.join_streams(group, "z")
    yield from talk.ask(DescribeGroupsRequest(groups=[group]), 6)


REQUESTS: Final = (
    describe,
    new_member,
    same_member_again,
    later_topology,
    plain,
    report_all,
    report_some,
    stale,
    future,
    stranger,
    leave,
    stranger_leaves,
    shut_down,
    commits,
    fetches,
    delete_offsets_of,
    delete,
    classic_requests,
    classic_join,
)


# Requests that are refused, and topologies


def refused_joins() -> Mapping[str, dict[str, object]]:
    regex = Subtopology(subtopology_id="0", source_topics=["in"], source_topic_regex=["a.*"])
    sized = TopicInfo(name="c", partitions=3, replication_factor=0)
    return {
        "instance": {"instance_id": "i"},
        "task offsets": {"task_offsets": [TaskOffset(subtopology_id="0", partition=0, offset=1)]},
        "task end offsets": {"task_end_offsets": []},
        "warmup": {"warmup_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        "regex": {"topology": topology(regex)},
        "rack": {"rack_id": " "},
        "timeout": {"rebalance_timeout_ms": -1},
        "no active": {"active_tasks": None},
        "active": {"active_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        "standby": {"standby_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        "no warmup": {"warmup_tasks": None},
        "no topology": {"topology": None},
        "sized changelog": {
            "topology": topology(Subtopology(subtopology_id="0", source_topics=["in"], state_changelog_topics=[sized]))
        },
        "two tags": {"client_tags": [KeyValue(key="k", value="1"), KeyValue(key="k", value="2")]},
    }


def repartition(name: str, partitions: int = 0) -> TopicInfo:
    return TopicInfo(name=name, partitions=partitions, replication_factor=1)


def topologies() -> Mapping[str, Topology]:
    """Topologies by what is special about them. None of them has all its internal topics."""
    both = CopartitionGroup(source_topics=[0, 1])
    with_source = CopartitionGroup(source_topics=[0], repartition_source_topics=[0])
    to_r = Subtopology(subtopology_id="0", source_topics=["in"], repartition_sink_topics=["r"])
    looping = Subtopology(
        subtopology_id="0", repartition_sink_topics=["r"], repartition_source_topics=[repartition("r")]
    )
    no_sink = Subtopology(subtopology_id="0", source_topics=["in"], repartition_source_topics=[repartition("r")])

    def joining(partitions: int) -> Subtopology:
        return Subtopology(
            subtopology_id="1",
            source_topics=["left"],
            repartition_source_topics=[repartition("r", partitions)],
            copartition_groups=[with_source],
        )

    return {
        "no sources": topology(Subtopology(subtopology_id="0")),
        "loop": topology(looping),
        "no sink": topology(no_sink),
        "same id": topology(to_r, to_r),
        "negative epoch": topology(epoch=-1),
        "nothing": Topology(epoch=0, subtopologies=[]),
        "invalid name": topology(Subtopology(subtopology_id="0", source_topics=["a b"])),
        "internal": topology(Subtopology(subtopology_id="0", source_topics=["__consumer_offsets"])),
        "index": topology(
            Subtopology(
                subtopology_id="0", source_topics=["in"], copartition_groups=[CopartitionGroup(source_topics=[7])]
            )
        ),
        "missing": topology(Subtopology(subtopology_id="0", source_topics=["z", "y", "x", "w"])),
        "sizes": topology(Subtopology(subtopology_id="0", source_topics=["left", "right"], copartition_groups=[both])),
        "fixed": topology(to_r, joining(3)),
        "changelog of another size": topology(
            Subtopology(
                subtopology_id="0",
                source_topics=["left"],
                state_changelog_topics=[TopicInfo(name="c", partitions=0, replication_factor=0)],
            )
        ),
        "with a store": topology(
            Subtopology(
                subtopology_id="0",
                source_topics=["in"],
                state_changelog_topics=[TopicInfo(name="c", partitions=0, replication_factor=0)],
            )
        ),
        "twice the same changelog": topology(
            Subtopology(
                subtopology_id="0",
                source_topics=["in"],
                state_changelog_topics=[TopicInfo(name="c", partitions=0, replication_factor=0)] * 2,
            )
        ),
    }


def faults(talk: StreamsTalk) -> Talk:
    for name, fields in refused_joins().items():
        yield from talk.join_streams(f"refused {name}", "a", **fields)
    for name, wanted in topologies().items():
        yield from talk.join_streams(f"topology {name}", "a", topology=wanted)
        yield from describe(talk, f"topology {name}")
    yield from talk.join_streams("", "a")
    yield from talk.join_streams("g", " ")
    yield from stable(talk, "faults")
    wrong: tuple[tuple[int, dict[str, object]], ...] = (
        (-2, {}),
        (-3, {}),
        (2, {"active_tasks": []}),
        (2, {"topology": topology()}),
        (2, owned(0, 9)),
        (2, owned(-1)),
        (2, {**owned(), "standby_tasks": [TaskIds(subtopology_id="7", partitions=[])]}),
    )
    for epoch, fields in wrong:
        yield from talk.beat("faults", "a", epoch, **fields)
    yield from describe(talk, "faults")
    yield from talk.ask(StreamsGroupDescribeRequest(group_ids=["", "nope"], include_authorized_operations=False), 0)


def endpoints(talk: StreamsTalk) -> Talk:
    """Members with endpoints."""
    here, there = Endpoint(host="here", port=1), Endpoint(host="there", port=65535)
    yield from talk.join_streams("e", "a", user_endpoint=here)
    yield from talk.beat("e", "a", 2)
    yield from talk.join_streams("e", "b", user_endpoint=there, client_tags=[KeyValue(key="zone", value="z")])
    yield from talk.beat("e", "b", 3, endpoint_information_epoch=1)
    yield from talk.beat("e", "a", 2, endpoint_information_epoch=1, **owned(0, 1, 2, 3))
    yield from talk.beat("e", "a", 2, endpoint_information_epoch=2, **owned(0, 1))
    yield from talk.beat("e", "b", 3, endpoint_information_epoch=2)
    yield from describe(talk, "e")


def endpoint_without_topic(talk: StreamsTalk) -> Talk:
    """A member with an endpoint, and a topology whose source topic is missing."""
    missing = topology(Subtopology(subtopology_id="0", source_topics=["nope"]))
    yield from talk.join_streams("e2", "a", user_endpoint=Endpoint(host="here", port=1), topology=missing)
    yield from describe(talk, "e2")


def processes(talk: StreamsTalk) -> Talk:
    """Members of one process, and older topologies."""
    yield from talk.join_streams("p", "a", process_id="P", topology=topology(epoch=2), rack_id="r1")
    yield from talk.join_streams("p", "b", process_id="P", topology=topology(epoch=1))
    yield from talk.join_streams("p", "c", process_id="P", topology=topology(epoch=2))
    yield from talk.beat("p", "a", 2, **owned(0, 1, 2, 3))
    yield from talk.beat("p", "a", 2, **owned(0, 1))
    yield from talk.beat("p", "b", 3)
    yield from talk.beat("p", "c", 4)
    yield from describe(talk, "p")
    yield from talk.beat("p", "a", 4, rack_id="r2")
    yield from describe(talk, "p")


def listed(talk: StreamsTalk) -> Talk:
    for state in STATES:
        yield from state(talk, f"listed {state.__name__}")
    for states in ([], ["Empty"], ["Stable"], ["Reconciling"], ["Assigning"]):
        yield from talk.ask(ListGroupsRequest(states_filter=states, types_filter=["streams"]), 5)
    yield from talk.ask(ListGroupsRequest(), 5)


def converse(topic_id: bytes) -> Generator[Question, object, list[str]]:
    """The whole conversation: yields questions, is sent the answers, returns two lines for each."""
    talk = StreamsTalk(topic_id)
    talk.lines.append("# listed")
    yield from listed(talk)
    for state in STATES:
        for request in REQUESTS:
            group = f"{state.__name__} {request.__name__}"
            if state is classic and request is classic_join:
                continue  # The other member would have to rejoin.
            talk.lines.append(f"# {group}")
            yield from state(talk, group)
            yield from request(talk, group)
    for part in (faults, endpoints, endpoint_without_topic, processes):
        talk.lines.append(f"# {part.__name__}")
        yield from part(talk)
    return talk.lines


def make_topics(wire: Wire) -> None:
    topics = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in TOPICS.items()]
    created = wire.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    assert isinstance(created, CreateTopicsResponse) and not any(each.error_code for each in created.topics), created


def hold(port: int, talk_about: Callable[[bytes], Generator[Question, object, list[str]]] = converse) -> list[str]:
    """The conversation with a broker on this machine."""
    wires = {MAIN: Wire(port)}
    make_topics(wires[MAIN])
    talk = talk_about(prepare(wires[MAIN]))
    try:
        question = next(talk)
        while True:
            question = talk.send(answer(wires, port, question))
    except StopIteration as end:
        lines: list[str] = end.value
        return lines


if __name__ == "__main__":
    print("\n".join(hold(int(sys.argv[1]))))
