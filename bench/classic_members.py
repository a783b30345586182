"""Members of a classic group whose partitions move cooperatively (KIP-429), on the wire and the same for both brokers.

As in the clients' assignors, a partition that moves is assigned again only in the generation after its owner has
revoked it. A member learns of a rebalance by its heartbeat, every 3 s as in clients.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Final

from bench.async_client import COORDINATOR_STARTING_ERRORS, Connection, open_connection
from moldau.protocol.compiler import decode, encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from moldau.protocol.records.offsets import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition

PROTOCOL: Final = "cooperative-sticky"
HEARTBEAT_S: Final = 3.0
JOIN_VERSION: Final = 9
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
LEAVE_VERSION: Final = 5
EMBEDDED_VERSION: Final = 1
"""The version of subscriptions: the first one that has the partitions that a member owns."""


class ClassicMember:
    """A member of a classic group that subscribes to one topic. `partitions_of_topic` returns the number of the topic's
    partitions, which a real leader reads from metadata."""

    def __init__(self, port: int, group_id: str, topic: str, partitions_of_topic: Callable[[], int]) -> None:
        self.group_id = group_id
        self.member_id = ""
        self.epoch = -1
        """The generation."""
        self.owned: frozenset[int] = frozenset()
        self.is_leader = False
        self.must_rejoin = asyncio.Event()
        """Set from outside to make the leader join again, as after a change of the topic's metadata."""
        self._topic = topic
        self._port = port
        self._partitions_of_topic = partitions_of_topic
        self._connection: Connection | None = None
        self._beating: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Join the group, and return when the member has the assignment of a generation. `begin_heartbeats` starts its
        heartbeats.
        """
        self._connection = await open_connection(self._port)
        await self._until_settled()

    def begin_heartbeats(self, delay_s: float) -> None:
        self._beating = asyncio.get_running_loop().create_task(self._beat(delay_s))

    async def leave(self) -> None:
        assert self._beating is not None
        self._beating.cancel()
        await asyncio.sleep(0.01)
        self.close()
        self._connection = await open_connection(self._port)
        self.owned = frozenset()
        gone = MemberIdentity(member_id=self.member_id)
        await self._connection.ask(
            LeaveGroupRequest(group_id=self.group_id, members=[gone]), LeaveGroupResponse, LEAVE_VERSION
        )

    def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _beat(self, delay_s: float) -> None:
        await self._pause(delay_s)
        while True:
            if self.must_rejoin.is_set():
                self.must_rejoin.clear()
                await self._until_settled()
            else:
                assert self._connection is not None
                beat = HeartbeatRequest(group_id=self.group_id, generation_id=self.epoch, member_id=self.member_id)
                error = (await self._connection.ask(beat, HeartbeatResponse, HEARTBEAT_VERSION)).error_code
                if error == ErrorCode.REBALANCE_IN_PROGRESS:
                    await self._until_settled()
                else:
                    assert error == ErrorCode.NONE, f"{self.member_id}: {error}"
            await self._pause(HEARTBEAT_S)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.must_rejoin.wait(), seconds)
        except TimeoutError:
            return

    async def _until_settled(self) -> None:
        """Join one generation after the other until the member has no partition left to revoke."""
        while True:
            joined = await self._joined()
            synced = await self._synced(joined)
            if synced is None:
                continue
            kept = self.owned & synced
            has_revoked = kept != self.owned
            self.owned = synced
            if not has_revoked:
                return

    async def _joined(self) -> JoinGroupResponse:
        while True:
            owned = [TopicPartition(topic=self._topic, partitions=sorted(self.owned))] if self.owned else []
            subscription = ConsumerProtocolSubscription(topics=[self._topic], user_data=None, owned_partitions=owned)
            metadata = struct.pack(">h", EMBEDDED_VERSION) + encode(subscription, EMBEDDED_VERSION)
            request = JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=300_000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
            )
            assert self._connection is not None
            answer = await self._connection.ask(request, JoinGroupResponse, JOIN_VERSION)
            if answer.error_code == ErrorCode.NONE:
                self.member_id, self.epoch = answer.member_id, answer.generation_id
                return answer
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            else:
                assert answer.error_code in COORDINATOR_STARTING_ERRORS, f"{self.member_id}: {answer.error_code}"
                await asyncio.sleep(0.1)

    async def _synced(self, joined: JoinGroupResponse) -> frozenset[int] | None:
        """Send SyncGroup, and return the partitions that the leader assigned; None if the next generation has already
        begun.
        """
        self.is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        assignments = []
        if self.is_leader:
            owned = {each.member_id: owned_partitions(bytes(each.metadata)) for each in joined.members}
            given = cooperative_assignment(owned, self._partitions_of_topic())
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=self._written(partitions))
                for member_id, partitions in given.items()
            ]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        assert self._connection is not None
        answer = await self._connection.ask(request, SyncGroupResponse, SYNC_VERSION)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        assert answer.error_code == ErrorCode.NONE, f"{self.member_id}: {answer.error_code}"
        found = decode(ConsumerProtocolAssignment, memoryview(bytes(answer.assignment))[2:], EMBEDDED_VERSION)
        return frozenset(index for each in found.assigned_partitions for index in each.partitions)

    def _written(self, partitions: frozenset[int]) -> bytes:
        topics = [TopicPartition(topic=self._topic, partitions=sorted(partitions))] if partitions else []
        assignment = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None)
        return struct.pack(">h", EMBEDDED_VERSION) + encode(assignment, EMBEDDED_VERSION)


def owned_partitions(metadata: bytes) -> frozenset[int]:
    """Return the partitions that a member owns, from its subscription to one topic."""
    subscription = decode(ConsumerProtocolSubscription, memoryview(metadata)[2:], EMBEDDED_VERSION)
    return frozenset(index for each in subscription.owned_partitions for index in each.partitions)


def cooperative_assignment(owned: Mapping[str, frozenset[int]], partitions: int) -> dict[str, frozenset[int]]:
    """Compute the cooperative assignment: each member gets the same number of partitions or one more, and keeps as many
    as possible. A partition that another member still owns is not assigned yet.
    """
    least, extras = divmod(partitions, len(owned))
    free = sorted(set(range(partitions)).difference(*owned.values()))
    given: dict[str, set[int]] = {}
    for member_id in sorted(owned, key=lambda each: (-len(owned[each]), each)):
        quota = least + (extras > 0)
        extras -= extras > 0
        given[member_id] = {*sorted(owned[member_id])[:quota]}
        while len(given[member_id]) < quota and free:
            given[member_id].add(free.pop())
    return {member_id: frozenset(indexes) for member_id, indexes in given.items()}
