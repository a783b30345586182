"""Members of a consumer group (KIP-848) and of a share group of a simulated cluster.

two owners       two members of the consumer group own one partition in one epoch
taken            a commit of a stranger, or with an epoch to come
offset lost      at the end an offset is not the one acknowledged last, nor one that was sent and not answered
again            a record is delivered after its acceptance was answered, by that leader or a later one
count            a delivery count above the limit, or one that does not grow while one leader has the partition
record lost      at the end a record was neither accepted, nor rejected, nor delivered as often as is allowed
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.cluster_clients import EARLIEST, LATEST, Bootstrap, within
from tests.support.cluster_group import BEAT_S, FORGED, LEAVES, GroupWatch, Member
from tests.support.coordinators import coordinator_of
from tests.support.node import Client, Closed
from tests.support.share_consumer import Consumer

REBALANCE_MS: Final = 3_000
LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
ACCEPT, RELEASE, REJECT = 1, 2, 3
DELIVERIES_MAX: Final = 5
"""group.share.delivery.count.limit"""
FETCH_WAIT_MS: Final = 200
ROUNDS_MAX: Final = 8
FINAL_ROUNDS: Final = 1_000


async def topic_id_of(bootstrap: Bootstrap, topic: str) -> bytes:
    reply = await bootstrap.ask_any(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
    (found,) = reply.topics
    if found.error_code:
        raise Closed  # This broker does not know it yet.
    topic_id: bytes = found.topic_id
    return topic_id


class ConsumerMember(Member):
    """A member of a consumer group: it gives partitions back at once, and commits for those that it owns."""

    version = 1
    """Of its heartbeats."""

    def __init__(self, watch: GroupWatch, bootstrap: Bootstrap, name: str) -> None:
        super().__init__(watch, bootstrap)
        self._name = name
        self._lives = 0
        self._topic_id = b""
        self._begin()

    def _begin(self) -> None:
        self._lives += 1
        self._member_id = f"{self._name}-{self._lives}"
        self._drop()

    def _drop(self) -> None:
        """It owns nothing, and joins with its next heartbeat."""
        self._generation, self._owned, self._says_everything = 0, [], True

    async def _converse(self) -> None:
        if not self._topic_id:
            self._topic_id = await topic_id_of(self._bootstrap, self._watch.topic)
        client = await self._coordinator()
        if client is None:
            return
        self._says_everything = True
        try:
            while not self.is_ending:
                if not await self._step(client):
                    return
                await asyncio.sleep(self._bootstrap.random.random() * 2 * BEAT_S)
        except TimeoutError as error:
            raise Closed from error
        finally:
            client.close()

    async def _step(self, client: Client) -> bool:
        """One heartbeat and the requests with it. False if this coordinator should not be asked any more."""
        answer: Any = await within(client.ask(self._heartbeat(), self.version))
        if answer.error_code in LOST:
            self._drop()
            return True
        if answer.error_code:
            return False
        self._generation, self._says_everything = answer.member_epoch, False
        self._hear(answer)
        for index in self._owned:
            if not await self._commit_own(client, index):
                return False
        if self._bootstrap.random.random() < LEAVES:
            leave = self._leave()
            self._begin()
            await within(client.ask(leave, self.version))
        return True

    def _heartbeat(self) -> object:
        """Everything in the first one to a coordinator, and if what it owns has changed."""
        watch = self._watch
        request = ConsumerGroupHeartbeatRequest(
            group_id=watch.group, member_id=self._member_id, member_epoch=self._generation
        )
        if self._says_everything:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [watch.topic]
            owned = [TopicPartitions(topic_id=self._topic_id, partitions=self._owned)] if self._owned else []
            request.topic_partitions = owned
        return request

    def _hear(self, answer: Any) -> None:
        if answer.assignment is not None:
            told = sorted(index for each in answer.assignment.topic_partitions for index in each.partitions)
            self._says_everything = told != self._owned
            self._owned = told
            self._watch.synced(self._member_id, self._generation, told)

    def _leave(self) -> object:
        return ConsumerGroupHeartbeatRequest(group_id=self._watch.group, member_id=self._member_id, member_epoch=-1)

    async def _commit_own(self, client: Client, index: int) -> bool:
        watch, random = self._watch, self._bootstrap.random
        offset = watch.next_offset(index)
        error = await self._commit(client, index, offset, self._generation, self._member_id)
        if error == ErrorCode.NONE:
            watch.committed(index, offset)
        elif error == ErrorCode.UNKNOWN_MEMBER_ID:
            self._drop()
        elif error != ErrorCode.STALE_MEMBER_EPOCH:
            return False
        if random.random() < 0.2:
            for epoch, member_id in ((self._generation + 1_000, self._member_id), (self._generation, "a stranger")):
                if await self._commit(client, index, FORGED, epoch, member_id) == ErrorCode.NONE:
                    watch.taken(f"a commit of {member_id} with epoch {epoch}")
        return True

    async def _commit(self, client: Client, index: int, offset: int, generation: int, member_id: str) -> int:
        partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self._watch.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=self._watch.topic, partitions=[partition])],
        )
        answer: Any = await within(client.ask(request, 9), 7)
        error: int = answer.topics[0].partitions[0].error_code
        return error


class ShareWatch:
    """What the members of one share group were told."""

    def __init__(self, group: str, topic: str, complaints: list[str], epoch_of: Callable[[int, int], int]) -> None:
        """`epoch_of`: the leader epoch of a partition on a node, -1 if it has none."""
        self.group = group
        self.topic = topic
        self.epoch_of = epoch_of
        self.accepted: dict[tuple[int, int], tuple[int, int]] = {}
        """By partition and offset: when the acceptance was answered, and the leader epoch then."""
        self.excused: set[tuple[int, int]] = set()
        """Rejected, delivered as often as is allowed, or acknowledged without an answer."""
        self.moment = 0
        self._counts: dict[tuple[int, int], tuple[int, int]] = {}
        """The last delivery count, and the leader epoch of that delivery."""
        self._complaints = complaints

    def now(self) -> int:
        self.moment += 1
        return self.moment

    def complain(self, text: str) -> None:
        self._complaints.append(f"share group {self.group}: {text}")

    def delivered(self, index: int, run: tuple[int, int, int], epochs: tuple[int, int], sent: int) -> None:
        """A run of records in the answer to a request that was sent then. `epochs`: the leader epoch of the node before
        and after the request.
        """
        first, last, count = run
        if count > DELIVERIES_MAX:
            self.complain(f"{first} to {last} of {index} is delivered for the {count}th time")
        for offset in range(first, last + 1):
            moment, epoch = self.accepted.get((index, offset), (self.moment, -1))
            if moment < sent and min(epochs) >= epoch:
                self.complain(f"{offset} of {index} is delivered in epochs {epochs} and was accepted in {epoch}")
            before, former_epoch = self._counts.get((index, offset), (0, -1))
            if epochs == (former_epoch, former_epoch) and count < before:
                self.complain(f"the count of {offset} of {index} goes from {before} to {count}")
            self._counts[index, offset] = count, max(epochs)
            if count >= DELIVERIES_MAX:
                self.excused.add((index, offset))

    def missing(self, index: int, begin: int, end: int) -> list[int]:
        keys = ((index, offset) for offset in range(begin, end))
        return [offset for _, offset in keys if not {(index, offset)} & (self.accepted.keys() | self.excused)]


class ShareMember:
    """A member of a share group: it fetches from one assigned partition after the other, and acknowledges."""

    def __init__(self, watch: ShareWatch, bootstrap: Bootstrap, name: str) -> None:
        self.is_ending = False
        self._watch = watch
        self._bootstrap = bootstrap
        self._member_id = name
        self._epoch = 0
        self.assigned: list[int] = []
        self._topic_id = b""

    async def work(self) -> None:
        while not self.is_ending:
            with suppress(Closed):
                await self._round()
            await self._bootstrap.back_off()

    async def _round(self) -> None:
        if not self._topic_id:
            self._topic_id = await topic_id_of(self._bootstrap, self._watch.topic)
        await self._beat()
        if self.assigned:
            await self._consume(self._bootstrap.random.choice(self.assigned), ROUNDS_MAX, accepts_all=False)

    async def _beat(self) -> None:
        node_id = await coordinator_of(self._bootstrap.ask_any, self._watch.group)
        if node_id < 0:
            return
        request = ShareGroupHeartbeatRequest(
            group_id=self._watch.group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=[self._watch.topic],
        )
        answer = await self._bootstrap.ask(node_id, request, 1)
        if answer.error_code in LOST:
            self._epoch, self.assigned = 0, []
        elif not answer.error_code:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = [index for each in answer.assignment.topic_partitions for index in each.partitions]

    async def _consume(self, index: int, rounds: int, *, accepts_all: bool) -> None:
        """Some fetches from the leader of a partition, each with the acknowledgement of what the one before brought."""
        watch, random = self._watch, self._bootstrap.random
        node_id = await self._bootstrap.leader((watch.topic, index))
        client = await self._bootstrap.connect(node_id)
        consumer = Consumer(client, self._topic_id, self._member_id, watch.group)
        told: list[tuple[int, int, int]] = []
        try:
            for _ in range(rounds):
                sent, epoch = watch.now(), watch.epoch_of(node_id, index)
                kinds = [ACCEPT if accepts_all else random.choice((ACCEPT,) * 6 + (RELEASE, REJECT)) for _ in told]
                acknowledged = [(first, last, kind) for (first, last, _), kind in zip(told, kinds, strict=True)]
                self._note_unanswered(index, acknowledged)
                answer = await within(
                    consumer.fetch(
                        *acknowledged,
                        partition=index,
                        wait_ms=FETCH_WAIT_MS,
                        records_max=500 if accepts_all else random.choice((1, 5, 20)),
                    )
                )
                if answer.error_code:
                    return
                told = []
                for each in (each for topic in answer.responses for each in topic.partitions):
                    if acknowledged and each.acknowledge_error_code == ErrorCode.NONE:
                        self._note_answered(index, acknowledged, watch.epoch_of(node_id, index))
                    if each.error_code:
                        return
                    told = [(run.first_offset, run.last_offset, run.delivery_count) for run in each.acquired_records]
                    for run in told:
                        watch.delivered(index, run, (epoch, watch.epoch_of(node_id, index)), sent)
                if accepts_all and not told:
                    return
        except TimeoutError as error:
            raise Closed from error
        finally:
            client.close()

    def _note_unanswered(self, index: int, acknowledged: list[tuple[int, int, int]]) -> None:
        """It may be stored from now on, whatever is answered."""
        for first, last, kind in acknowledged:
            if kind != RELEASE:
                self._watch.excused.update((index, offset) for offset in range(first, last + 1))

    def _note_answered(self, index: int, acknowledged: list[tuple[int, int, int]], epoch: int) -> None:
        moment = self._watch.now()
        for first, last, kind in acknowledged:
            for offset in range(first, last + 1) if kind == ACCEPT else ():
                self._watch.accepted.setdefault((index, offset), (moment, epoch))

    # The end

    async def finish(self, index: int) -> None:
        """Accept everything of a partition that its log has now."""
        begin, end = await self._end_of(index, EARLIEST), await self._end_of(index, LATEST)
        while self._watch.missing(index, begin, end):
            with suppress(Closed):
                await self._consume(index, FINAL_ROUNDS, accepts_all=True)
            await self._bootstrap.back_off()

    async def _end_of(self, index: int, timestamp: int) -> int:
        wish = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        topic = ListOffsetsTopic(name=self._watch.topic, partitions=[wish])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
        while True:
            with suppress(Closed):
                leader = await self._bootstrap.leader((self._watch.topic, index))
                (answer,) = (await self._bootstrap.ask(leader, request, 4)).topics[0].partitions
                if answer.error_code == ErrorCode.NONE:
                    offset: int = answer.offset
                    return offset
            await self._bootstrap.back_off()
