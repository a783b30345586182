"""Small honest clients of a simulated cluster: an idempotent producer, a tailing reader, a committer of group offsets.

They know what a client library knows: leaders from Metadata, refreshed after a refusal or a broken connection; a
producer id; the sequence of each batch. What is unacknowledged is sent again, in order, on a new connection, while the
old connection may still deliver what was sent before. What they were told goes into a `History`, and what no client
should ever be told into `complaints`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, Protocol, TypeAlias, cast

from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from moldau.protocol.record_batch import crc_is_valid
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.storage.segment.batch_scan import damage_in
from tests.support.coordinators import coordinator_of
from tests.support.history import History, Key, Reading, Send
from tests.support.node import Client, Closed, fetch_request, produce_request
from tests.support.told_ends import ToldEnds

PATIENCE_S: Final = 5.0
CONNECT_S: Final = 2.0
IN_FLIGHT_MAX: Final = 5
BACKOFF_S: Final = 0.05
REFUSED_MAX: Final = 50
"""The number of refused sequences of the first batch in doubt after which a producer continues with another epoch: some
seconds.
"""
BEYOND: Final = 1 << 40
"""An offset that no log has."""
EARLIEST: Final = -2
LATEST: Final = -1
ASKS_FOR_END: Final = 0.1
"""The number of requests for the end of its partition before a reader fetches."""
TRANSIENT: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class Brokers(Protocol):
    """The way in which a client reaches the cluster."""

    @property
    def node_ids(self) -> list[int]: ...

    async def connect(self, node_id: int) -> Client: ...


async def within(answer: Awaitable[Any], patience_s: float = PATIENCE_S) -> Any:
    return await asyncio.wait_for(answer, patience_s)


class NotAsked(Closed):
    """There was no connection, so the request was certainly not sent."""


class Bootstrap:
    """The first part of every client: a connection to any broker that responds, and lookups of leaders."""

    def __init__(self, brokers: Brokers, random: Random) -> None:
        self._brokers = brokers
        self.random = random
        self.is_peer_alive: Callable[[], bool] = lambda: True
        """Whether the process of the last request is still alive."""

    @property
    def node_ids(self) -> list[int]:
        """The nodes that serve clients."""
        return self._brokers.node_ids

    async def ask_any(self, request: object, version: int) -> Any:
        """Ask any broker. Raises `Closed` if the one that was tried does not respond."""
        return await self.ask(self.random.choice(self.node_ids), request, version)

    async def ask(self, node_id: int, request: object, version: int) -> Any:
        client = await self.connect(node_id)
        self.is_peer_alive = client.is_peer_alive
        try:
            return await within(client.ask(request, version))
        except TimeoutError as error:
            raise Closed from error
        finally:
            client.close()

    async def connect(self, node_id: int) -> Client:
        """Connect to a broker. Raises `NotAsked`."""
        try:
            client: Client = await within(self._brokers.connect(node_id), CONNECT_S)
            return client
        except (OSError, TimeoutError) as error:
            raise NotAsked from error

    async def replicas(self, key: Key) -> tuple[int, list[int]]:
        """The leader (-1 for none) and all replicas of a partition. Raises `Closed`."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=key[0])], allow_auto_topic_creation=False)
        reply = await self.ask_any(request, 9)
        for partition in reply.topics[0].partitions:
            if partition.partition_index == key[1]:
                return partition.leader_id, list(partition.replica_nodes)
        return -1, []

    async def leader(self, key: Key) -> int:
        """The leader of a partition, once there is one."""
        while True:
            try:
                leader_id, _ = await self.replicas(key)
                if leader_id > 0:
                    return leader_id
            except Closed:
                pass
            await self.back_off()

    async def back_off(self) -> None:
        await asyncio.sleep(BACKOFF_S * (1 + self.random.random()))


Told: TypeAlias = Callable[[Bootstrap, str, Callable[[MetadataImage], bool]], None]
"""Called with a promise of the controller: the connection, the promise, and whether it was read in metadata."""


def believed(bootstrap: Bootstrap, what: str, holds: Callable[[MetadataImage], bool]) -> None:
    """Ignore a promise, if no metadata can be checked."""


class Batch:
    """A batch that was sent, and waits for an acknowledgement."""

    __slots__ = ("base_sequence", "data", "refused_count", "sends", "sent_count")

    def __init__(self, base_sequence: int, data: bytes, sends: list[Send]) -> None:
        self.base_sequence = base_sequence
        self.data = data
        self.sends = sends
        self.sent_count = 0
        self.refused_count = 0
        """The number of refusals because of its sequence."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether a send had no response, or another error: a leader may have appended the batch."""
        return self.sent_count > self.refused_count


def plain_record(value: str) -> Record:
    return Record(value=value.encode(), timestamp=1_767_225_600_000)


def value_of(record: Record) -> str:
    return (record.value or b"").decode()


class Producer:
    """An idempotent producer for one partition under acks=all."""

    def __init__(
        self, name: str, key: Key, bootstrap: Bootstrap, history: History, complaints: list[str], **shape: Any
    ) -> None:
        self.name = name
        self.key = key
        self.is_ending = False
        self.acknowledged_count = 0
        self.acknowledged_end = 0
        """The offset after the last batch that was acknowledged with its offset; batches in doubt lie after it."""
        self.on_acknowledged: Callable[[Key, int, Client], None] = lambda key, offset, client: None
        """Called with the last offset of every acknowledged batch, and its connection."""
        self._bootstrap = bootstrap
        self._random = bootstrap.random
        self._history = history
        self._complaints = complaints
        self._in_flight_max: int = shape.get("in_flight", IN_FLIGHT_MAX)
        self._batch_records_max: int = shape.get("batch_records_max", 3)
        self._pause_s: float = shape.get("pause_s", 0.05)
        self._timeout_ms: int = shape.get("timeout_ms", 1000)
        self._gives_up: float = shape.get("gives_up", 0.002)
        self._record_of: Callable[[str], Record] = shape.get("record_of", plain_record)
        self._issued: dict[tuple[int, int], str] = shape.get("issued", {})
        """Every id and epoch that was given out, with the producer that got it."""
        self._incarnation = 0
        self._count = 0
        self._id: tuple[int, int] | None = None
        self._former_id: tuple[int, int] | None = None
        self._sequence = 0
        self._unacknowledged: deque[Batch] = deque()
        self._is_known = False
        """Whether a leader has accepted a batch of this incarnation.

        A leader accepts any batch as the first one of an unknown producer, even one after a batch that it refused.
        """

    async def work(self) -> None:
        """Produce until the story ends and every batch is acknowledged."""
        while not (self.is_ending and not self._unacknowledged):
            try:
                if self._id is None:
                    await self._begin()
                client = await self._bootstrap.connect(await self._bootstrap.leader(self.key))
                try:
                    await self._converse(client)
                finally:
                    client.close()
            except Closed:
                await self._bootstrap.back_off()

    def slow_down(self, pause_s: float) -> None:
        """Wait at least this long, on average, between two batches."""
        self._pause_s = max(self._pause_s, pause_s)

    async def _begin(self) -> None:
        """Begin a new incarnation, with a new id or with the next epoch of the current one."""
        if self._former_id is not None and self._random.random() < 0.5:
            self._id, self._former_id = (self._former_id[0], self._former_id[1] + 1), None
            self._incarnate()
            return
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        answer = await self._bootstrap.ask_any(request, 4)
        if answer.error_code != 0:
            self._judge(ErrorCode(answer.error_code), "a producer id")
            raise Closed
        self._id = answer.producer_id, answer.producer_epoch
        self._incarnate()

    def _incarnate(self) -> None:
        assert self._id is not None
        self._incarnation += 1
        self._sequence = 0
        self._is_known = False
        owner = self._issued.setdefault(self._id, f"{self.name}.{self._incarnation}")
        if owner != f"{self.name}.{self._incarnation}":
            self._complaints.append(f"producer id {self._id} was given to {owner} and to {self.name}")

    async def _converse(self, client: Client) -> None:
        """Produce on one connection, until it breaks, a batch is refused, or all is done."""
        in_flight: deque[Batch] = deque()
        unsent = deque(self._unacknowledged)
        while True:
            in_flight_max = self._in_flight_max if self._is_known else 1
            while len(in_flight) < in_flight_max and (batch := self._next(unsent)) is not None:
                in_flight.append(batch)
                request = produce_request(self.key[0], batch.data, partition=self.key[1])
                request.timeout_ms = self._timeout_ms
                client.send(request, 9)
                batch.sent_count += 1
                if self._random.random() < 0.3:
                    break
            if not in_flight:
                if self.is_ending:
                    return
                await asyncio.sleep(self._pause_s)
                continue
            try:
                reply = await within(client.reply())
            except TimeoutError as error:
                raise Closed from error
            answer = reply.responses[0].partition_responses[0]
            self._take(in_flight.popleft(), ErrorCode(answer.error_code), answer.base_offset, client)
            if self._random.random() < self._gives_up:
                self._give_up()
                return
            await asyncio.sleep(self._random.random() * 2 * self._pause_s)

    def _next(self, unsent: deque[Batch]) -> Batch | None:
        if unsent:
            return unsent.popleft()
        if self.is_ending:
            return None
        assert self._id is not None
        producer = f"{self.name}.{self._incarnation}"
        values = [f"{producer}/{self._count + i}" for i in range(self._random.randint(1, self._batch_records_max))]
        self._count += len(values)
        sequence = self._sequence
        self._sequence += len(values)
        data = build_batch(
            [self._record_of(value) for value in values],
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            base_sequence=sequence,
        )
        batch = Batch(sequence, data, [self._history.send(producer, self.key, value) for value in values])
        self._unacknowledged.append(batch)
        return batch

    def _take(self, batch: Batch, error: ErrorCode, base_offset: int, client: Client) -> None:
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._unacknowledged.remove(batch)
            self._is_known = True
            self.acknowledged_count += len(batch.sends)
            for i, sent in enumerate(batch.sends):
                sent.acknowledge(base_offset + i if base_offset >= 0 else -1)
            if base_offset >= 0:
                self.acknowledged_end = base_offset + len(batch.sends)
                self.on_acknowledged(self.key, base_offset + len(batch.sends) - 1, client)
            return
        if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # One before it was refused, or this is a deposed leader that does not know it yet. All are sent again, from
            # the first one on; if a leader has lost something it goes on like that, and the producer never ends.
            batch.refused_count += 1
            if batch is self._unacknowledged[0] and batch.is_in_doubt and batch.refused_count >= REFUSED_MAX:
                # A leader that was started again remembers the last batch alone, as the producer snapshot of Apache
                # Kafka does, and refuses those before it. Kafka's producer goes on with another epoch (KIP-360).
                self._give_up()
            raise Closed
        self._judge(error, f"sequence {batch.base_sequence} of {self.key[0]}-{self.key[1]}")
        raise Closed

    def _judge(self, error: ErrorCode, what: str) -> None:
        if error not in TRANSIENT:
            self._complaints.append(f"{self.name}.{self._incarnation} was refused {what}: {error.name}")
            self._give_up()

    def _give_up(self) -> None:
        """Give up the connection.

        Batches in flight stay in doubt, and may still arrive; the next incarnation continues.
        """
        self._id, self._former_id = None, self._id
        self._unacknowledged.clear()


class Reader:
    """Follows one partition from its beginning, from the leader or from any replica."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        reading: Reading,
        complaints: list[str],
        *,
        from_followers: bool = False,
        may_rot: bool = False,
        name_of: Callable[[Record], str] = value_of,
    ) -> None:
        """`may_rot`: a disk may be bad, so that a batch with a wrong CRC is asked for again, as Kafka's clients do.
        `name_of`: what a record is called in the history."""
        self._name_of = name_of
        self.reading = reading
        self._may_rot = may_rot
        self.offset = 0
        self.told_ends: ToldEnds | None = None
        """The ends that were reported; if it is given, the reader requests ends from time to time."""
        self.on_end: Callable[[Key, int, Client], None] = lambda key, offset, client: None
        """Called with the last offset before each end that a leader reported, and the connection."""
        self._isolation_level = bootstrap.random.randrange(2)
        self._bootstrap = bootstrap
        self._complaints = complaints
        self._from_followers = from_followers

    async def work(self, is_ended: Callable[[], bool]) -> None:
        """Read until no more records will come and the high watermark is reached."""
        while True:
            try:
                if await self._converse(is_ended):
                    return
            except Closed:
                pass
            await self._bootstrap.back_off()

    async def start_after(self, readings: Sequence[Reading]) -> None:
        """Begin where the log does, and take over from others what came before: they read it while it was there."""
        wish = ListOffsetsPartition(partition_index=self.reading.key[1], timestamp=EARLIEST)
        topic = ListOffsetsTopic(name=self.reading.key[0], partitions=[wish])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
        while True:
            with suppress(Closed):
                reply = await self._bootstrap.ask(await self._bootstrap.leader(self.reading.key), request, 4)
                (answer,) = reply.topics[0].partitions
                if answer.error_code == ErrorCode.NONE:
                    break
            await self._bootstrap.back_off()
        self.offset = answer.offset
        before = {offset: value for each in readings for offset, value in each.records if offset < self.offset}
        for offset in sorted(before):
            self.reading.got(offset, before[offset])

    async def _converse(self, is_ended: Callable[[], bool]) -> bool:
        leader_id, replicas = await self._bootstrap.replicas(self.reading.key)
        may_finish = True
        if self._from_followers and replicas and not is_ended():
            leader_id, may_finish = self._bootstrap.random.choice(replicas), False
        if leader_id <= 0:
            return False
        client = await self._bootstrap.connect(leader_id)
        try:
            for _ in range(self._bootstrap.random.randint(1, 20) if self._from_followers else 1000):
                ends = is_ended()
                if self.told_ends is not None and self._bootstrap.random.random() < ASKS_FOR_END:
                    await self._ask_for_end(client, self.told_ends)
                request = fetch_request(
                    [(*self.reading.key, self.offset)],
                    max_wait_ms=200,
                    partition_max_bytes=8000,
                    isolation_level=self._isolation_level,
                )
                data = (await within(client.ask(request, 11))).responses[0].partitions[0]
                if data.error_code != 0:
                    return False  # OFFSET_OUT_OF_RANGE too, from a replica that is behind or was deposed.
                self._take(cast("bytes", data.records or b""), data.high_watermark)
                if ends and may_finish and self.offset >= data.high_watermark:
                    return True
        except TimeoutError as error:
            raise Closed from error
        finally:
            client.close()
        return False

    async def _ask_for_end(self, client: Client, told_ends: ToldEnds) -> None:
        key, before = self.reading.key, told_ends.before(self.reading.key)
        wish = ListOffsetsPartition(partition_index=key[1], timestamp=LATEST)
        topic = ListOffsetsTopic(name=key[0], partitions=[wish])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=self._isolation_level, topics=[topic])
        (answer,) = (await within(client.ask(request, 5))).topics[0].partitions
        if answer.error_code == ErrorCode.NONE:
            told_ends.told(key, answer.leader_epoch, answer.offset, before)
            self.on_end(key, answer.offset - 1, client)

    def _take(self, stored: bytes, high_watermark: int) -> None:
        if self._may_rot and damage_in(stored) is not None:
            return
        for place, header in iterate_batches(stored):
            if not crc_is_valid(stored, place, header):
                self._complaints.append(f"{self.reading.reader} was served a batch with a wrong CRC")
                raise Closed
            for record in records_of(stored, place, header):
                if record.offset < self.offset:
                    continue
                if record.offset >= high_watermark:
                    text = f"{self.reading.reader} got offset {record.offset} past high watermark {high_watermark}"
                    self._complaints.append(text)
                self.reading.got(record.offset, self._name_of(record))
            self.offset = max(self.offset, header.next_offset)


class Trimmer:
    """Deletes records at the beginning of one partition, which everybody has read, and tries to delete others.

    None that a producer has not heard of: a leader that began anew knows no sequence of before the start of its log, in
    Apache Kafka as here, and refuses the repeat as out of order.
    """

    def __init__(
        self,
        key: Key,
        readers: Sequence[Reader],
        producers: Sequence[Producer],
        bootstrap: Bootstrap,
        complaints: list[str],
    ) -> None:
        self.key = key
        self._readers = readers
        self._producers = producers
        self._bootstrap = bootstrap
        self._complaints = complaints
        self.on_asking: Callable[[Key, int], Callable[[int], None]] = lambda key, leader_id: lambda low_watermark: None
        """Called with each request and its target; its result is called with the low watermark of the response."""

    async def work(self, is_ended: Callable[[], bool]) -> None:
        while not is_ended():
            with suppress(Closed):
                await self._trim()
            await asyncio.sleep(self._bootstrap.random.random() * 2)

    async def _trim(self) -> None:
        read = min(
            *(reader.offset for reader in self._readers), *(producer.acknowledged_end for producer in self._producers)
        )
        is_forbidden = self._bootstrap.random.random() < 0.3
        offset = BEYOND if is_forbidden else int(self._bootstrap.random.random() * (read + 1))
        wish = DeleteRecordsPartition(partition_index=self.key[1], offset=offset)
        topic = DeleteRecordsTopic(name=self.key[0], partitions=[wish])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        leader_id = await self._bootstrap.leader(self.key)
        answered = self.on_asking(self.key, leader_id)
        reply = await self._bootstrap.ask(leader_id, request, 2)
        (answer,) = reply.topics[0].partitions
        if answer.error_code == ErrorCode.NONE:
            answered(answer.low_watermark)
        if is_forbidden and answer.error_code == ErrorCode.NONE:
            self._complaints.append(f"records of {self.key} were deleted up to offset {answer.low_watermark}")


class Committer:
    """One group commits ever higher offsets; what was acknowledged must be there afterwards, on whichever node."""

    def __init__(
        self,
        group: str,
        key: Key,
        bootstrap: Bootstrap,
        complaints: list[str],
        term_of: Callable[[int, str], int | None] = lambda node_id, group: None,
    ) -> None:
        """`term_of`: the leader epoch in which a node is a group's coordinator, None if it is not, or not any more
        for all that was ever committed: such a node may answer with what was true then, any other may not."""
        self.group = group
        self._term_of = term_of
        self._node_id = -1
        self.key = key
        self.is_ending = False
        self.acknowledged = -1
        self._shown = -1
        """The highest offset that a coordinator reported as committed; no later read may return a lower one."""
        self._sent = -1
        self._in_doubt: dict[int, None] = {}
        """Offsets that were sent and not answered; they may arrive after later ones."""
        self._bootstrap = bootstrap
        self._complaints = complaints

    async def work(self) -> None:
        while not self.is_ending:
            with suppress(Closed):
                await self._converse()
            await self._bootstrap.back_off()

    async def verify(self) -> None:
        """Check at the end that the coordinator has the acknowledged offset, or a later one that was sent."""
        while True:
            try:
                client = await self._coordinator()
                if client is not None and await self._check(client, is_final=True):
                    return
            except Closed:
                pass
            await self._bootstrap.back_off()

    async def _coordinator(self) -> Client | None:
        self._node_id = await coordinator_of(self._bootstrap.ask_any, self.group)
        return None if self._node_id < 0 else await self._bootstrap.connect(self._node_id)

    async def _converse(self) -> None:
        client = await self._coordinator()
        if client is None:
            return
        try:
            while not self.is_ending:
                self._sent += 1
                partition = OffsetCommitRequestPartition(partition_index=self.key[1], committed_offset=self._sent)
                topic = OffsetCommitRequestTopic(name=self.key[0], partitions=[partition])
                request = OffsetCommitRequest(group_id=self.group, member_id="", topics=[topic])
                sent = self._sent
                self._in_doubt[sent] = None
                error = (await within(client.ask(request, 8))).topics[0].partitions[0].error_code
                if error:
                    return
                self.acknowledged = sent
                del self._in_doubt[sent]
                if self._bootstrap.random.random() < 0.2 and not await self._check(client, is_final=False):
                    return
                await asyncio.sleep(self._bootstrap.random.random() * 0.3)
        except TimeoutError as error:
            raise Closed from error
        finally:
            client.close()

    async def _check(self, client: Client, *, is_final: bool) -> bool:
        topic = OffsetFetchRequestTopic(name=self.key[0], partition_indexes=[self.key[1]])
        is_stable = is_final or self._bootstrap.random.random() < 0.5
        request = OffsetFetchRequest(group_id=self.group, topics=[topic], require_stable=is_stable)
        acknowledged, term = max(self.acknowledged, self._shown), self._term_of(self._node_id, self.group)
        try:
            reply = await within(client.ask(request, 7))
        except TimeoutError as error:
            raise Closed from error
        if reply.error_code or reply.topics[0].partitions[0].error_code:
            return False
        found = reply.topics[0].partitions[0].committed_offset
        # A deposed coordinator that does not know it yet may respond with a former offset.
        is_final = is_final or (term is not None and term == self._term_of(self._node_id, self.group))
        if found > self._sent or (is_final and found < acknowledged and found not in self._in_doubt):
            told = f"committed {self.acknowledged} (sent {self._sent}, found {self._shown} before)"
            self._complaints.append(f"group {self.group} {told} and finds {found}")
        self._shown = max(self._shown, found)
        return True
