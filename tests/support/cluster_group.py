"""A consumer group of a simulated cluster: members that join, share partitions, commit, leave and come back.

What no coordinator may ever do, whichever nodes it was on:

    double owner      two members own one partition in one generation
    stale commit      a commit, a heartbeat or a sync of a former generation, or a commit of a stranger, is taken
    offset lost       at the end an offset is not the one acknowledged last, nor one that was sent and not answered
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.cluster_clients import Bootstrap, within
from tests.support.coordinators import coordinator_of
from tests.support.node import Client, Closed

SESSION_MS: Final = 6000
REBALANCE_MS: Final = 3000
JOIN_S: Final = 12.0
BEAT_S: Final = 0.3
LEAVES: Final = 0.04
"""The probability that a member leaves after a heartbeat."""
FORGED: Final = 1 << 40
"""An offset that must never be committed."""


class GroupWatch:
    """The responses to all members of one group."""

    def __init__(self, group: str, topic: str, partitions: int, complaints: list[str]) -> None:
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.newest_generation = -1
        """The newest generation of which a member has its assignment."""
        self.acknowledged = dict.fromkeys(range(partitions), -1)
        self.in_doubt: dict[int, dict[int, None]] = {index: {} for index in range(partitions)}
        self._sent = 0
        self._owners: dict[tuple[int, int], str] = {}
        self._complaints = complaints

    def synced(self, member_id: str, generation: int, owned: list[int]) -> None:
        self.newest_generation = max(self.newest_generation, generation)
        for index in owned:
            owner = self._owners.setdefault((generation, index), member_id)
            if owner != member_id:
                text = f"{owner} and {member_id} own partition {index} in generation {generation}"
                self._complaints.append(f"group {self.group}: {text}")

    def next_offset(self, index: int) -> int:
        self._sent += 1
        self.in_doubt[index][self._sent] = None
        return self._sent

    def committed(self, index: int, offset: int) -> None:
        self.in_doubt[index].pop(offset, None)
        self.acknowledged[index] = max(self.acknowledged[index], offset)

    def taken(self, what: str) -> None:
        self._complaints.append(f"group {self.group}: {what} was taken")

    def found(self, index: int, offset: int) -> None:
        if offset < self.acknowledged[index] and offset not in self.in_doubt[index]:
            text = f"partition {index}: {self.acknowledged[index]} was committed, {offset} is found"
            self._complaints.append(f"group {self.group}: {text}")


class Member:
    """One member; after it left it joins again as another one."""

    def __init__(self, watch: GroupWatch, bootstrap: Bootstrap) -> None:
        self.is_ending = False
        self._watch = watch
        self._bootstrap = bootstrap
        self._member_id = ""
        self._generation = -1
        self._owned: list[int] = []

    async def work(self) -> None:
        while not self.is_ending:
            with suppress(Closed):
                await self._converse()
            await self._bootstrap.back_off()

    async def _coordinator(self) -> Client | None:
        node_id = await coordinator_of(self._bootstrap.ask_any, self._watch.group)
        return None if node_id < 0 else await self._bootstrap.connect(node_id)

    async def _converse(self) -> None:
        client = await self._coordinator()
        if client is None:
            return
        try:
            while not self.is_ending:
                if self._generation < 0 and not await self._enter(client):
                    return
                if not await self._beat(client):
                    return
                await asyncio.sleep(self._bootstrap.random.random() * 2 * BEAT_S)
        except TimeoutError as error:
            raise Closed from error
        finally:
            client.close()

    # Entering a generation

    async def _enter(self, client: Client) -> bool:
        """Join and get an assignment; False if that is to be tried again, of another node perhaps."""
        joined: JoinGroupResponse = await within(client.ask(self._join(), 5), JOIN_S)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joined = await within(client.ask(self._join(), 5), JOIN_S)
        if joined.error_code:
            self._forget_if_unknown(joined.error_code)
            return False
        self._member_id = joined.member_id
        sync = SyncGroupRequest(
            group_id=self._watch.group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            assignments=self._shares([each.member_id for each in joined.members]),
        )
        synced = await within(client.ask(sync, 3), JOIN_S)
        if synced.error_code:
            self._forget_if_unknown(synced.error_code)
            return False
        self._generation, self._owned = joined.generation_id, list(bytes(synced.assignment))
        self._watch.synced(self._member_id, self._generation, self._owned)
        return True

    def _join(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._watch.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="in turn", metadata=b"")],
        )

    def _shares(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """Of the leader, who alone is told the members: a byte for each partition."""
        count = len(members)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=bytes(range(place, self._watch.partitions, count)))
            for place, member in enumerate(members)
        ]

    def _forget_if_unknown(self, error: int) -> None:
        self._generation = -1
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""

    # Within a generation

    async def _beat(self, client: Client) -> bool:
        """One heartbeat and the requests with it. False if this coordinator should not be asked any more."""
        watch, random = self._watch, self._bootstrap.random
        for index in self._owned:
            offset = watch.next_offset(index)
            error = await self._commit(client, index, offset, self._generation, self._member_id)
            if error == ErrorCode.NONE:
                watch.committed(index, offset)
            elif not self._stays(error):
                return False
        if random.random() < 0.3:
            await self._try_stale_commit(client)
        beat = HeartbeatRequest(group_id=watch.group, generation_id=self._generation, member_id=self._member_id)
        error = (await within(client.ask(beat, 3))).error_code
        if not self._stays(error):
            return False
        if error == ErrorCode.NONE and random.random() < 0.2:
            await self._try_as_others(client, beat)
        if random.random() < LEAVES:
            leave = LeaveGroupRequest(group_id=watch.group, members=[MemberIdentity(member_id=self._member_id)])
            await within(client.ask(leave, 3))
            self._generation, self._member_id = -1, ""
        return True

    def _stays(self, error: int) -> bool:
        """Whether the coordinator can go on being asked; a generation may be over."""
        if error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            return True
        if error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            self._forget_if_unknown(error)
            return False
        return False

    async def _try_stale_commit(self, client: Client) -> None:
        """What a member that was away for long, or somebody who never was one, sends."""
        watch = self._watch
        generation = watch.newest_generation
        if generation > 0:
            error = await self._commit(client, 0, FORGED, generation - 1, self._member_id)
            if error == ErrorCode.NONE:
                watch.taken(f"a commit of generation {generation - 1} after generation {generation} had begun")
            error = await self._commit(client, 0, FORGED, self._generation, "a stranger")
            if error == ErrorCode.NONE:
                watch.taken("a commit of a stranger")

    async def _try_as_others(self, client: Client, beat: HeartbeatRequest) -> None:
        """What this coordinator must refuse, for a moment ago it took this member's heartbeat: what comes of the
        generation before, and a commit of nobody, who may commit for groups without members alone."""
        watch, former = self._watch, self._generation - 1
        late = HeartbeatRequest(group_id=watch.group, generation_id=former, member_id=self._member_id)
        if await self._is_known(client, late):
            watch.taken(f"a heartbeat of generation {former} in generation {self._generation}")
        sync = SyncGroupRequest(group_id=watch.group, generation_id=former, member_id=self._member_id)
        if (await within(client.ask(sync, 3))).error_code == ErrorCode.NONE:
            watch.taken(f"a sync of generation {former} in generation {self._generation}")
        offset = watch.next_offset(0)
        error = await self._commit(client, 0, offset, -1, "")
        # Unless this member's session ended, it was in the group during the whole time.
        if error == ErrorCode.NONE and await self._is_known(client, beat):
            watch.taken(f"a commit of nobody in generation {self._generation}")

    async def _is_known(self, client: Client, beat: HeartbeatRequest) -> bool:
        """Whether a heartbeat is taken, and that of a stranger after it is not: a coordinator takes anybody's until it
        has loaded the group, as in Apache Kafka. Twice, for it may have loaded it between the two."""
        strange = HeartbeatRequest(group_id=beat.group_id, generation_id=beat.generation_id, member_id="a stranger")
        for _ in range(2):
            if (await within(client.ask(beat, 3))).error_code != ErrorCode.NONE:
                return False
            if (await within(client.ask(strange, 3))).error_code == ErrorCode.NONE:
                return False
        return True

    async def _commit(self, client: Client, index: int, offset: int, generation: int, member_id: str) -> int:
        partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name=self._watch.topic, partitions=[partition])
        request = OffsetCommitRequest(
            group_id=self._watch.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[topic],
        )
        answer: Any = await within(client.ask(request, 7))
        error: int = answer.topics[0].partitions[0].error_code
        return error

    # The end

    async def verify(self) -> None:
        """Check that the coordinator has the acknowledged offset, or a later one that was sent."""
        while True:
            with suppress(Closed):
                client = await self._coordinator()
                if client is not None:
                    try:
                        if await self._check(client):
                            return
                    except TimeoutError:
                        pass
                    finally:
                        client.close()
            await self._bootstrap.back_off()

    async def _check(self, client: Client) -> bool:
        topic = OffsetFetchRequestTopic(name=self._watch.topic, partition_indexes=list(range(self._watch.partitions)))
        request = OffsetFetchRequest(group_id=self._watch.group, topics=[topic], require_stable=True)
        reply = await within(client.ask(request, 7))
        if reply.error_code or any(each.error_code for each in reply.topics[0].partitions):
            return False
        for each in reply.topics[0].partitions:
            self._watch.found(each.partition_index, each.committed_offset)
        return True
