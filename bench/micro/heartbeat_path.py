"""The cost of heartbeats of group members for a broker: `python bench/micro/heartbeat_path.py`.

The node runs on the event loop of this process, over real sockets and files. The members are another process, each with
a connection of its own, in groups of 10. One after the other sends a heartbeat that changes nothing. A pause between
two heartbeats makes the node's event loop wait for each of them, as it does with 10,000 members that send one every 5
s.

Prints the CPU time (microseconds) of a heartbeat, and its user part, as the median and the minimum of some rounds. With
`--classic` the groups are classic ones, with `--acls` the node has an authorizer. `--no-pause` leaves the pause out.
`--profile` prints a profile instead.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.client import Client, connect_with_retries
from bench.frames import request_frame
from bench.micro.local_node import formatted_node, measure_rounds
from bench.transactional_client import await_coordinator
from moldau.broker.node.node import Node
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.conformance.brokers import Ports

GROUPS = 50
MEMBERS_EACH = 10
CLASSIC_GROUPS = 500
"""Classic groups have one member each, because the others would have to join at once."""
ROUNDS = 7
ROUND_HEARTBEATS = 4_000
PAUSE_S = 0.0002
GROUP_KEY = 0
TOPIC = "micro"
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


class Member:
    """A member with its connection, and the frame of its heartbeat."""

    def __init__(self, port: int, group_id: str, member_id: str) -> None:
        self.client = Client(port)
        self.group_id = group_id
        self.member_id = member_id
        self.frame = b""
        self.request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=0, topic_partitions=[]
        )

    def join(self) -> None:
        joining = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        answer = self._beat(joining)
        assert answer.error_code == ErrorCode.NONE, answer
        self.request.member_epoch = answer.member_epoch

    def settle(self) -> None:
        """Send heartbeats, with what the member owns, until there is nothing new."""
        request = self.request
        while True:
            answer = self._beat(request)
            assert answer.error_code == ErrorCode.NONE, answer
            request.member_epoch = answer.member_epoch
            if answer.assignment is None:
                break
            request.topic_partitions = [
                TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                for each in answer.assignment.topic_partitions
            ]
        request.topic_partitions = None
        self.frame = request_frame(request, 1)

    def join_classic(self) -> None:
        """Join a group as its only member."""
        protocol = JoinGroupRequestProtocol(
            name="range", metadata=b"\0\3\0\0\0\0\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\xff\xff"
        )
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = self.client.ask(request, JoinGroupResponse, 9)
        request.member_id = joined.member_id
        joined = self.client.ask(request, JoinGroupResponse, 9)
        assert joined.error_code == ErrorCode.NONE, joined
        given = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\0\0\0\0\0\0\xff\xff\xff\xff")
        sync = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[given],
        )
        assert self.client.ask(sync, SyncGroupResponse, 5).error_code == ErrorCode.NONE
        beat = HeartbeatRequest(group_id=self.group_id, generation_id=joined.generation_id, member_id=joined.member_id)
        self.frame = request_frame(beat, 4)

    def _beat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        return self.client.ask(request, ConsumerGroupHeartbeatResponse, 1)


def send_heartbeats(port: int) -> None:
    """The process of the members: a round for each line of its input."""
    client = connect_with_retries(port)
    wanted = CreatableTopic(name=TOPIC, num_partitions=MEMBERS_EACH, replication_factor=1)
    client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), CreateTopicsResponse, 5)
    client.produce_with_retries(TOPIC, MEMBERS_EACH - 1)
    await_coordinator(client, "micro-0", GROUP_KEY)
    if "--classic" in sys.argv:
        members = [Member(port, f"micro-{group}", "") for group in range(CLASSIC_GROUPS)]
        for member in members:
            member.join_classic()
    else:
        members = [
            Member(port, f"micro-{group}", f"micro-{group}-{number}")
            for group in range(GROUPS)
            for number in range(MEMBERS_EACH)
        ]
        for member in members:
            member.join()
        for _ in range(6):
            time.sleep(1.2)
            for member in members:
                member.settle()
    pause_s = 0 if "--no-pause" in sys.argv else PAUSE_S
    at = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            member = members[at % len(members)]
            at += 1
            member.client.exchange(member.frame)
            if pause_s:
                time.sleep(pause_s)
        print("done", flush=True)


async def started(home: str, port: int) -> Node:
    controller = f"127.0.0.1:{port + 1}"
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{controller}"
    own = {"controller.quorum.voters": f"1@{controller}", "listeners": listeners, "log.dirs": home}
    node = formatted_node({**PROPERTIES, **(AUTHORIZER if "--acls" in sys.argv else {}), **own})
    await node.start()
    return node


async def measure(home: str) -> None:
    port = Ports(25_000, 26_000).pair()
    node = await started(home, port)
    await measure_rounds((__file__, str(port), *sys.argv[1:]), "a heartbeat", requests=ROUND_HEARTBEATS, rounds=ROUNDS)
    await node.stop()


def main() -> None:
    if sys.argv[1:2] and sys.argv[1].isdigit():
        send_heartbeats(int(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as home:
        uvloop.run(measure(home))


if __name__ == "__main__":
    main()
