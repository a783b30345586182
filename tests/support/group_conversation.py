"""A conversation with a group coordinator, to be held with ours and with Apache Kafka's.

`python -m tests.support.group_conversation PORT` holds it with a fresh broker on that port (it makes the topic `t` with
two partitions; `group.initial.rebalance.delay.ms` must be 0) and prints the replies as the test keeps them.
"""

from __future__ import annotations

import re
import socket
import struct
import sys
import time
from collections.abc import Callable, Generator

from moldau.protocol.compiler import decode
from moldau.protocol.frames import request_frame, size_prefixed
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from moldau.protocol.schema import spec_of

Question = tuple[str, object, int]
"""Through which connection, which request, in which version; with None for a request: what that connection hears next.

A question through a connection other than the main one is answered by the next question without a request."""
Talk = Generator[Question, object, None]

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
CLIENT_ID = "cli"
MAIN = ""
NO_SUCH_TOPIC_ID = b"\1" * 16
SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"


class Conversation:
    """Numbers the random ids, so that two conversations can be compared."""

    def __init__(self, topic_id: bytes) -> None:
        self._topic_id = topic_id
        self._ids: dict[str, str] = {}
        self.lines: list[str] = []

    def ask(self, request: object, version: int) -> Generator[Question, object, object]:
        """Ask, and write down question and answer."""
        response = yield MAIN, request, version
        self._write(f"{type(request).__name__} v{version}", f"    {ordered(response, self._age)!r}")
        return response

    def send(self, connection: str, request: object, version: int) -> Talk:
        """Ask, and do not wait for the answer."""
        self._write(f"{connection}: {type(request).__name__} v{version}")
        yield connection, request, version

    def receive(self, connection: str) -> Generator[Question, object, object]:
        """The answer to what was asked through a connection."""
        response = yield connection, None, 0
        self._write(f"{connection}:     {ordered(response, self._age)!r}")
        return response

    def _write(self, *texts: str) -> None:
        for text in texts:
            text = text.replace(repr(self._topic_id), "TOPIC_ID").replace(repr(NO_SUCH_TOPIC_ID), "NO_SUCH_TOPIC_ID")
            self.lines.append(UUID.sub(lambda found: self._number(found[0]), text))

    def _age(self, member_id: str) -> int:
        """When the member was first heard of; one that is heard of for the first time is the youngest."""
        found = UUID.search(member_id)
        return int(self._ids[found[0]].removeprefix("UUID")) if found and found[0] in self._ids else len(self._ids) + 1

    def _number(self, uuid: str) -> str:
        return self._ids.setdefault(uuid, f"UUID{len(self._ids) + 1}")

    def join(
        self, group: str, member: str = "", *, version: int = 9, **options: object
    ) -> Generator[Question, object, JoinGroupResponse]:
        response = yield from self.ask(join_request(group, member, version, **options), version)
        assert isinstance(response, JoinGroupResponse)
        return response

    def sync(self, group: str, generation: int, member: str, plan: bytes | None = None, version: int = 5) -> Talk:
        parts = [] if plan is None else [SyncGroupRequestAssignment(member_id=member, assignment=plan)]
        request = SyncGroupRequest(group_id=group, generation_id=generation, member_id=member, assignments=parts)
        if version >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        yield from self.ask(request, version)

    def commit(
        self,
        group: str,
        generation: int,
        member: str,
        *offsets: tuple[str | bytes, int, int, str | None],
        version: int = 9,
    ) -> Talk:
        topics = [
            OffsetCommitRequestTopic(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, bytes) else bytes(16),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for topic, index, offset, metadata in offsets
        ]
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics
        )
        if version <= 4:
            request.retention_time_ms = 100_000
        yield from self.ask(request, version)

    def delete_offsets(self, group: str, *partitions: tuple[str, int]) -> Talk:
        topics = [
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
            for topic, index in partitions
        ]
        yield from self.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)


def join_request(group: str, member: str = "", version: int = 9, **options: object) -> JoinGroupRequest:
    names = options.pop("protocols", ("range",))
    assert isinstance(names, tuple)
    values: dict[str, object] = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000 if version else -1,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name=name, metadata=SUBSCRIPTION) for name in names],
        **options,
    }
    return JoinGroupRequest(**values)  # type: ignore[arg-type]


def ordered(response: object, age: Callable[[str], int]) -> object:
    """If the order of a reply says nothing, one order; members by the age of their ids."""
    match response:
        case ListGroupsResponse():
            response.groups.sort(key=lambda group: group.group_id)
        case DescribeGroupsResponse():
            response.groups.sort(key=lambda group: group.group_id)
            for group in response.groups:
                group.members.sort(key=lambda member: age(member.member_id))
        case JoinGroupResponse():
            response.members.sort(key=lambda member: age(member.member_id))
        case DeleteGroupsResponse():
            response.results.sort(key=lambda result: result.group_id)
        case OffsetDeleteResponse():
            response.topics.sort(key=lambda topic: topic.name)
    return response


def converse(topic_id: bytes) -> Generator[Question, object, list[str]]:
    """The whole conversation: yields questions, is sent the answers, returns two lines for each."""
    talk = Conversation(topic_id)
    yield from strangers(talk)
    member = yield from first_member(talk)
    yield from commits(talk, member, topic_id)
    yield from offsets(talk, topic_id)
    yield from operators(talk)
    yield from leaving(talk, member)
    yield from static_members(talk)
    yield from rebalances(talk)
    yield from static_rebalances(talk)
    return talk.lines


def strangers(talk: Conversation) -> Talk:
    yield from talk.ask(HeartbeatRequest(group_id="nope", generation_id=1, member_id="x"), 4)
    yield from talk.ask(HeartbeatRequest(group_id="", generation_id=1, member_id="x"), 4)
    yield from talk.join("")
    yield from talk.join("g", session_timeout_ms=1)
    yield from talk.join("g", session_timeout_ms=1, version=5)
    yield from talk.join("g", "abc")
    yield from talk.join("g0", protocols=())
    yield from talk.sync("gggg", 1, "x", version=3)
    yield from talk.sync("", 1, "x", version=3)
    yield from talk.ask(ListGroupsRequest(), 5)


def first_member(talk: Conversation) -> Generator[Question, object, str]:
    member = (yield from talk.join("g")).member_id
    yield from talk.ask(ListGroupsRequest(), 4)
    request = DescribeGroupsRequest(groups=["g", "zz", ""], include_authorized_operations=True)
    yield from talk.ask(request, 6)
    yield from talk.ask(DescribeGroupsRequest(groups=["zz"], include_authorized_operations=True), 5)
    yield from talk.join("g", member)
    yield from talk.join("g", member)
    yield from talk.ask(DescribeGroupsRequest(groups=["g"]), 6)
    yield from talk.commit("g", 1, member, ("t", 0, 5, ""))
    yield from talk.sync("g", 1, member, b"\0\1abc")
    yield from talk.ask(SyncGroupRequest(group_id="g", generation_id=1, member_id=member), 5)
    yield from talk.sync("g", 1, member, version=3)
    yield from talk.sync("g", 2, member, version=3)
    wrong = SyncGroupRequest(
        group_id="g", generation_id=1, member_id=member, protocol_type="consumer", protocol_name="foo"
    )
    yield from talk.ask(wrong, 5)
    yield from talk.join("g", member, protocols=("roundrobin",), protocol_type="connect")
    return member


def commits(talk: Conversation, member: str, topic_id: bytes) -> Talk:
    yield from talk.commit("g", 1, member, ("t", 0, 5, "m"))
    many = [("t", 0, 6, "m"), ("t", 7, 5, "m"), ("nn", 0, 5, "m"), ("t", 1, 5, "x" * 5000), ("t", 1, 9, None)]
    yield from talk.commit("g", 1, member, *many)
    yield from talk.commit(
        "g", 1, member, (topic_id, 1, 7, "m"), (NO_SUCH_TOPIC_ID, 0, 1, ""), (topic_id, 5, 7, ""), version=10
    )
    yield from talk.commit("g", 1, member, ("t", 1, 8, "m"), version=4)
    yield from talk.commit("g", 5, member, ("t", 1, 8, "m"))
    yield from talk.commit("g", -1, "", ("t", 1, 8, "m"))
    yield from talk.commit("new1", 1, "q", ("t", 1, 8, "m"))
    yield from talk.commit("new1", 1, "q", ("t", 1, 8, "m"), version=8)
    yield from talk.commit("simple", -1, "", ("t", 0, 5, "m"), version=8)
    yield from talk.commit("", -1, "", ("t", 0, 5, "m"), version=8)
    yield from talk.commit("simple", -1, "zz", ("t", 0, 5, "m"), version=2)
    yield from talk.commit("new3", 3, "zz", ("nn", 0, 1, ""))
    yield from talk.commit("new4", 3, "zz")


def offsets(talk: Conversation, topic_id: bytes) -> Talk:
    def group(name: str, *topics: tuple[str | bytes, list[int]]) -> OffsetFetchRequestGroup:
        return OffsetFetchRequestGroup(
            group_id=name,
            topics=[
                OffsetFetchRequestTopics(
                    name=topic if isinstance(topic, str) else "",
                    topic_id=topic if isinstance(topic, bytes) else bytes(16),
                    partition_indexes=indexes,
                )
                for topic, indexes in topics
            ],
        )

    everything = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "", "missing")]
    yield from talk.ask(OffsetFetchRequest(groups=everything), 9)
    yield from talk.ask(OffsetFetchRequest(groups=everything, require_stable=True), 8)
    yield from talk.ask(
        OffsetFetchRequest(groups=[group("g", ("t", [0, 9]), ("nn", [0])), group("missing", ("t", [0]))]), 9
    )
    by_id = group("g", (NO_SUCH_TOPIC_ID, [0, 1]), (topic_id, [0, 1, 2]))
    yield from talk.ask(OffsetFetchRequest(groups=[everything[0], by_id]), 10)
    stranger = OffsetFetchRequestGroup(group_id="g", member_id="zork", member_epoch=4, topics=None)
    yield from talk.ask(OffsetFetchRequest(groups=[stranger], require_stable=True), 9)
    yield from talk.ask(OffsetFetchRequest(groups=[]), 9)
    old = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    for version in (1, 2, 5, 7):
        yield from talk.ask(OffsetFetchRequest(group_id="g", topics=old), version)
    yield from talk.ask(OffsetFetchRequest(group_id="g", topics=None), 5)
    yield from talk.ask(OffsetFetchRequest(group_id="missing", topics=old), 1)


def operators(talk: Conversation) -> Talk:
    for version in (0, 4, 6):
        yield from talk.ask(
            DescribeGroupsRequest(groups=["g", "simple"], include_authorized_operations=version == 4), version
        )
    for states, types in (
        ([], []),
        (["stable"], []),
        (["Empty"], []),
        (["zork"], []),
        ([], ["classic"]),
        ([], ["consumer"]),
        ([], ["Classic", "zork"]),
        ([], ["zork"]),
        (["Stable"], ["classic"]),
    ):
        yield from talk.ask(ListGroupsRequest(states_filter=states, types_filter=types), 5)
    yield from talk.ask(ListGroupsRequest(), 0)
    yield from talk.delete_offsets("g", ("t", 0), ("nn", 0), ("t", 9))
    yield from talk.delete_offsets("simple", ("t", 0), ("nn", 0), ("t", 1), ("t", 9))
    yield from talk.delete_offsets("absent", ("t", 0))
    yield from talk.delete_offsets("", ("t", 0))
    yield from talk.ask(DeleteGroupsRequest(groups_names=["g", "simple", "absent", "", "simple"]), 2)


def leaving(talk: Conversation, member: str) -> Talk:
    names = [("zz", "ii"), ("", "ii"), ("zz", None)]
    strangers = [MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in names]
    yield from talk.ask(LeaveGroupRequest(group_id="g", members=strangers), 5)
    yield from talk.ask(LeaveGroupRequest(group_id="ggg", members=strangers[2:]), 5)
    yield from talk.ask(LeaveGroupRequest(group_id="g", member_id="zz"), 1)
    yield from talk.ask(LeaveGroupRequest(group_id="", member_id="zz"), 1)
    yield from talk.ask(LeaveGroupRequest(group_id="g", members=[]), 4)
    yield from talk.join("g", member)
    yield from talk.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member, reason="bye")]), 5)
    yield from talk.ask(DescribeGroupsRequest(groups=["g"]), 6)
    yield from talk.join("old", version=0)
    alone = yield from talk.join("alone", version=1)
    yield from talk.sync("alone", 1, alone.member_id, b"", version=0)
    yield from talk.ask(LeaveGroupRequest(group_id="alone", member_id=alone.member_id), 0)


def static_members(talk: Conversation) -> Talk:
    first = yield from talk.join("st", group_instance_id="i1")
    request = SyncGroupRequest(
        group_id="st",
        generation_id=1,
        member_id=first.member_id,
        group_instance_id="i1",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"A")],
    )
    yield from talk.ask(request, 5)
    yield from talk.join("st", group_instance_id="i1")
    heartbeat = HeartbeatRequest(group_id="st", generation_id=1, member_id=first.member_id, group_instance_id="i1")
    yield from talk.ask(heartbeat, 4)
    yield from talk.join("st", first.member_id, group_instance_id="i1")
    yield from talk.join("st", group_instance_id="i1", version=6)
    leave = LeaveGroupRequest(group_id="st", members=[MemberIdentity(member_id="", group_instance_id="i1")])
    yield from talk.ask(leave, 5)
    yield from talk.ask(DeleteGroupsRequest(groups_names=["g", "st", ""]), 2)
    yield from talk.ask(DescribeGroupsRequest(groups=["g"]), 6)


def heartbeat(group: str, generation: int, member: str) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)


def plan(group: str, generation: int, member: str, shares: dict[str, bytes] | None = None) -> SyncGroupRequest:
    """The sync of a member; the leader's names shares by member id."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequestAssignment(member_id=name, assignment=share) for name, share in (shares or {}).items()
        ],
    )


def rebalances(talk: Conversation) -> Talk:
    """Two members, one of which leads, and what each hears of the other."""
    a = (yield from talk.join("r", version=3)).member_id
    yield from talk.ask(plan("r", 1, a, {a: b"all"}), 5)
    b = (yield from talk.join("r", version=5)).member_id
    yield from talk.send("b", join_request("r", b), 9)
    yield from talk.ask(heartbeat("r", 1, b), 4)
    yield from talk.ask(heartbeat("r", 1, a), 4)
    yield from talk.ask(plan("r", 1, a), 5)
    yield from talk.commit("r", 1, a, ("t", 0, 1, ""))
    yield from talk.ask(DescribeGroupsRequest(groups=["r"]), 6)
    yield from talk.join("r", a)
    yield from talk.receive("b")
    yield from talk.send("b", plan("r", 2, b), 5)
    yield from talk.ask(heartbeat("r", 2, b), 4)
    yield from talk.ask(plan("r", 2, a, {a: b"half", b: b"other half", "stranger": b"x"}), 5)
    yield from talk.receive("b")
    yield from talk.ask(plan("r", 2, b), 5)
    yield from talk.join("r", b)
    yield from talk.send("a", join_request("r", a), 9)
    yield from talk.ask(heartbeat("r", 2, b), 4)
    yield from talk.join("r", b)
    yield from talk.receive("a")
    yield from talk.send("b", plan("r", 3, b), 5)
    yield from talk.ask(LeaveGroupRequest(group_id="r", members=[MemberIdentity(member_id=a)]), 5)
    yield from talk.receive("b")
    yield from talk.join("r", b)
    yield from talk.ask(plan("r", 4, b), 5)
    yield from talk.join("r", protocols=("roundrobin",))
    yield from talk.send("b", join_request("r", b, protocols=("sticky", "range")), 9)
    yield from talk.receive("b")
    c = (yield from talk.join("r", protocols=("range", "sticky"))).member_id
    yield from talk.ask(LeaveGroupRequest(group_id="r", members=[MemberIdentity(member_id=c)]), 5)
    yield from talk.join("r", c)
    yield from talk.send("c", join_request("r", version=2, protocols=("range", "sticky")), 2)
    yield from talk.join("r", b, protocols=("sticky", "range", "roundrobin"))
    yield from talk.receive("c")
    yield from talk.ask(DescribeGroupsRequest(groups=["r"]), 3)


def static_rebalances(talk: Conversation) -> Talk:
    """Static members that restart at bad moments."""
    red = (yield from talk.join("s", group_instance_id="red")).member_id
    yield from talk.ask(plan("s", 1, red, {red: b"all"}), 5)
    yield from talk.send("blue", join_request("s", group_instance_id="blue"), 9)
    yield from talk.join("s", red, group_instance_id="red")
    joined = yield from talk.receive("blue")
    assert isinstance(joined, JoinGroupResponse)
    blue = joined.member_id
    # Between the phases, while the leader may be planning.
    yield from talk.send("blue 2", join_request("s", group_instance_id="blue"), 9)
    yield from talk.ask(heartbeat("s", 2, blue), 4)
    yield from talk.ask(plan("s", 2, red, {red: b"half", blue: b"other half"}), 5)
    # In the join phase, while its former self waits.
    yield from talk.send("blue 3", join_request("s", group_instance_id="blue"), 9)
    yield from talk.receive("blue 2")
    yield from talk.join("s", red, group_instance_id="red")
    joined = yield from talk.receive("blue 3")
    assert isinstance(joined, JoinGroupResponse)
    yield from talk.send("blue 3", plan("s", 3, joined.member_id), 5)
    yield from talk.ask(plan("s", 3, red, {red: b"half", joined.member_id: b"other half"}), 5)
    yield from talk.receive("blue 3")
    # In a stable group: as a follower, as the leader, with another protocol.
    yield from talk.join("s", group_instance_id="blue")
    yield from talk.join("s", group_instance_id="red")
    yield from talk.join("s", group_instance_id="red", version=5)
    yield from talk.ask(DescribeGroupsRequest(groups=["s"]), 6)
    yield from talk.send("blue 4", join_request("s", group_instance_id="blue", protocols=("roundrobin", "range")), 9)
    yield from talk.receive("blue 4")
    names = [MemberIdentity(member_id="", group_instance_id=name) for name in ("red", "green", "blue")]
    yield from talk.ask(LeaveGroupRequest(group_id="s", members=names), 4)
    yield from talk.ask(DescribeGroupsRequest(groups=["s"]), 6)


class Wire:
    """A plain connection to a broker."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._correlation_id = 0
        self._asked: list[tuple[type[object], int]] = []

    def call(self, request: object, version: int) -> object:
        self.send(request, version)
        return self.receive()

    def send(self, request: object, version: int) -> None:
        self._correlation_id += 1
        self._socket.sendall(size_prefixed(request_frame(request, version, self._correlation_id, CLIENT_ID.encode())))
        self._asked.append((type(request), version))

    def receive(self) -> object:
        """The answer to the oldest question."""
        request, version = self._asked.pop(0)
        (size,) = struct.unpack(">i", self._read(4))
        reply = self._read(size)
        name = request.__name__.replace("Request", "Response")
        response: type[object] = getattr(sys.modules[request.__module__], name)
        return decode(response, reply[5 if version in spec_of(request).flexible else 4 :], version)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return data


def prepare(wire: Wire) -> bytes:
    """Create the topic and the coordinator's internal topic. Returns the id of the topic."""
    from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
    from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    created = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert isinstance(created, CreateTopicsResponse) and created.topics[0].error_code == 0, created
    for _ in range(200):
        found = wire.call(FindCoordinatorRequest(key="g"), 2)
        assert isinstance(found, FindCoordinatorResponse)
        described = wire.call(DescribeGroupsRequest(groups=[f"group {number}" for number in range(1000)]), 5)
        assert isinstance(described, DescribeGroupsResponse)
        if found.error_code == 0 and all(group.error_code == 0 for group in described.groups):
            break
        time.sleep(0.1)  # Wait until the partitions of all groups are led and loaded.
    return created.topics[0].topic_id


def hold(port: int) -> list[str]:
    """The conversation with a broker on this machine."""
    wires = {MAIN: Wire(port)}
    talk = converse(prepare(wires[MAIN]))
    try:
        question = next(talk)
        while True:
            question = talk.send(answer(wires, port, question))
    except StopIteration as end:
        lines: list[str] = end.value
        return lines


def answer(wires: dict[str, Wire], port: int, question: Question) -> object:
    connection, request, version = question
    if connection not in wires:
        wires[connection] = Wire(port)
    wire = wires[connection]
    if request is None:
        return wire.receive()
    if connection == MAIN:
        return wire.call(request, version)
    wire.send(request, version)
    time.sleep(0.2)  # so that the broker takes the questions of several connections in this order
    return None


if __name__ == "__main__":
    print("\n".join(hold(int(sys.argv[1]))))
