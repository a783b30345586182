"""Histories that other testers of brokers found, each told by a client of either protocol of transactions.

    protocol 1   Produce below version 12, EndTxn below 5: the epoch stays, and nothing tells a late request of one
                 transaction from a request of the next one; what happens then is what Apache Kafka 4.3.1 does
    protocol 2   the epoch moves with every transaction: a late request finds none that it could change

The stories with one broker need nothing of it but connections, so that Apache Kafka can be asked the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from moldau.coordinator.transaction.events import ProducerIdAnswer
from moldau.coordinator.transaction.transaction import EPOCH_MAX, LAST_EPOCH, ONGOING, Transaction
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.record_builder import Record, build_batch
from tests.support.cluster import Cluster
from tests.support.coordinators import TRANSACTION, until_coordinated
from tests.support.machine_stage import WALL_MS
from tests.support.node import Client, Closed, Node, batch, serve_and
from tests.support.transaction_stage import TID, TIMEOUT_MS, A, TransactionStage
from tests.support.transactional_producer import (
    GROUP,
    ID,
    NEW,
    NONE,
    OLD,
    SETTINGS,
    Producer,
    read,
    started,
    until_done,
)

TIMEOUT_S: Final = 60
"""Of the transactions of `Producer`."""
ABORTED_S: Final = TIMEOUT_S + 15
"""After so long a transaction that nobody ends is aborted."""
STABLE_S: Final = 10.0
"""How long the last stable offset may stay behind once a transaction has ended."""
IS_NEW: Final = (False, True)
"""Whether the producer speaks the newer protocol."""


def end_of(producer: Producer, *, commits: bool) -> EndTxnRequest:
    """The request that ends the producer's transaction, as it is now."""
    return EndTxnRequest(transactional_id=ID, producer_id=producer.id, producer_epoch=producer.epoch, committed=commits)


def addition_of(producer: Producer, partition_index: int) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[partition_index])],
    )


def send_of(producer: Producer, value: bytes) -> ProduceRequest:
    """The request with the producer's next batch, which the producer itself does not count as sent."""
    records = build_batch(
        [Record(value=value, timestamp=producer.wall_ms())],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequences.get(0, 0),
        is_transactional=True,
    )
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=5_000, topic_data=[data])


async def late_send(client: Client, request: ProduceRequest, *, is_new: bool) -> ErrorCode:
    reply = await client.ask(request, NEW if is_new else OLD)
    return ErrorCode(reply.responses[0].partition_responses[0].error_code)


async def begun(producer: Producer, value: bytes) -> None:
    """A transaction with one record in partition 0."""

    async def attempt() -> ErrorCode:
        if not producer.is_new:
            (error,) = await producer.add("t", 0)
            if error is not NONE:
                return error
        return (await producer.send("t", value))[0]

    assert await until_done(attempt) is NONE


async def ended(producer: Producer, *, commits: bool) -> None:
    assert await until_done(partial(producer.end, commits=commits)) is NONE


async def state_of(client: Client) -> str:
    reply = await client.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0)
    return str(reply.transaction_states[0].transaction_state)


async def reads(client: Client, *values: bytes, within_s: float = STABLE_S) -> None:
    """A read_committed consumer of partition 0 reads these, and the last stable offset reaches the end in time."""
    for _ in range(int(within_s / 0.1)):
        data = await client.fetch("t", isolation_level=1)
        if data.last_stable_offset == data.high_watermark and await read(client) == [*values]:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"read is {await read(client)}, and {[*values]} are to be; {data.last_stable_offset}")


async def a_late_end(node: Node, *, is_new: bool) -> None:
    """KAFKA-17754. The client gave up the connection with its EndTxn, ended the transaction over another one, and is in
    the next one when the first request arrives. Protocol 1: it ends that one, as the first wanted.
    """
    producer = await started(node, is_new=is_new)
    late, reader = await node.connect(), await node.connect()
    expected: list[bytes] = []
    for number, (commits, next_commits) in enumerate(((True, False), (False, True))):
        former, second = b"former %d" % number, b"next %d" % number
        await begun(producer, former)
        delayed = end_of(producer, commits=commits)
        await ended(producer, commits=commits)
        expected += [former] if commits else []
        await reads(reader, *expected)
        await begun(producer, second)
        answer = ErrorCode((await late.ask(delayed, 5 if is_new else 4)).error_code)
        if is_new:
            assert answer is ErrorCode.PRODUCER_FENCED, f"a late end is answered with {answer.name}"
            assert await state_of(late) == "Ongoing"
            assert await read(reader) == expected, "a record is read whose transaction is open"
            await ended(producer, commits=next_commits)
            expected += [second] if next_commits else []
        else:
            assert answer is NONE, f"Apache Kafka takes it for the end of the next one: {answer.name}"
            expected += [second] if commits else []
            await reads(reader, *expected)
            own = await until_done(partial(producer.end, commits=next_commits))
            assert own is ErrorCode.INVALID_TXN_STATE, f"the producer is told {own.name}: it is ended otherwise"
        await reads(reader, *expected)


async def a_late_addition(node: Node, *, is_new: bool) -> None:
    """AddPartitionsToTxn that arrives when its transaction has ended. Protocol 1: it is the first of another one, which
    its timeout ends; no reader waits for the partition. Protocol 2 has no such request of clients; what a client of
    protocol 1 that was fenced has sent begins nothing.
    """
    producer = await started(node, is_new=is_new)
    late, reader = await node.connect(), await node.connect()
    await begun(producer, b"a")
    delayed = addition_of(producer, 1)
    await ended(producer, commits=True)
    await reads(reader, b"a")
    reply = await late.ask(delayed, 3)
    answer = ErrorCode(reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    if is_new:
        assert answer in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH), answer.name
        assert await state_of(late) == "CompleteCommit"
        return
    assert answer is NONE and await state_of(late) == "Ongoing", "as in Apache Kafka it begins another transaction"
    await reader.produce("t", batch("plain"), partition=1)
    data = await reader.fetch("t", partition=1, isolation_level=1)
    assert data.last_stable_offset == data.high_watermark == 1, "the partition has no record of the transaction"
    await asyncio.sleep(ABORTED_S)
    assert await state_of(late) == "CompleteAbort"
    await reads(reader, b"a")


async def a_late_batch(node: Node, *, is_new: bool) -> None:
    """A batch that arrives after its transaction was aborted: it leaves nothing open (KIP-890). Protocol 1: where the
    next transaction of the epoch writes to the partition, the batch becomes part of it.
    """
    producer = await started(node, is_new=is_new)
    late, reader = await node.connect(), await node.connect()
    await begun(producer, b"a")
    delayed = send_of(producer, b"late")
    await ended(producer, commits=False)
    await reads(reader)
    answer = await late_send(late, delayed, is_new=is_new)
    wanted = ErrorCode.INVALID_PRODUCER_EPOCH if is_new else ErrorCode.TRANSACTION_ABORTABLE
    assert answer is wanted, f"a batch of an aborted transaction is answered with {answer.name}"
    await reads(reader)
    if is_new:
        await begun(producer, b"b")
        assert await late_send(late, delayed, is_new=True) is ErrorCode.INVALID_PRODUCER_EPOCH
        await ended(producer, commits=True)
        await reads(reader, b"b")
        return
    assert await until_done(partial(first_of_addition, producer, 0)) is NONE
    assert await late_send(late, delayed, is_new=False) is NONE, "Apache Kafka takes it for the next transaction's"
    await ended(producer, commits=True)
    await reads(reader, b"late")


async def first_of_addition(producer: Producer, index: int) -> ErrorCode:
    return (await producer.add("t", index))[0]


async def first_of_send(producer: Producer, index: int) -> ErrorCode:
    return (await producer.send("t", b"x", partition=index))[0]


async def a_poll_while_a_transaction_is_open(node: Node, *, is_new: bool) -> None:
    """The transaction's own record is there for readers of uncommitted ones at once. A read_committed consumer gets
    neither it nor what another producer wrote behind it, and afterwards gets all of it, in order.
    """
    producer = await started(node, is_new=is_new)
    reader = await node.connect()
    expected: list[bytes] = []
    for commits in (True, False, True):
        await begun(producer, b"own")
        await reader.produce("t", batch("other"))
        uncommitted = await read(reader, isolation_level=0)
        assert uncommitted[-2:] == [b"own", b"other"], uncommitted
        assert await read(reader) == expected, "read past the last stable offset"
        await ended(producer, commits=commits)
        expected += [b"own", b"other"] if commits else [b"other"]
        await reads(reader, *expected)


async def a_position_after_an_abort(node: Node, *, is_new: bool) -> None:
    """The group's offset of an aborted transaction counts for nobody, and while it is open a consumer that asks for
    stable offsets is told to wait: it begins again where the last commit ended, without a gap.
    """
    producer = await started(node, is_new=is_new)
    client = await node.connect()
    for number in range(4):
        await client.produce("t", batch(f"v{number}"), partition=1)
    position = -1
    for offset, commits in ((2, True), (4, False), (3, True)):
        await begun(producer, b"x")
        assert await until_done(partial(producer.commit_offset, "t", offset)) is NONE
        assert await offset_of(client, is_stable=False) == (NONE, position)
        assert await offset_of(client, is_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        await ended(producer, commits=commits)
        position = offset if commits else position
        for _ in range(100):
            if (found := await offset_of(client, is_stable=True)) == (NONE, position):
                break
            await asyncio.sleep(0.1)
        assert found == (NONE, position), f"after commits={commits} the group is told {found}"


async def offset_of(client: Client, *, is_stable: bool) -> tuple[ErrorCode, int]:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
    reply = await client.ask(OffsetFetchRequest(groups=[group], require_stable=is_stable), 8)
    (found,) = reply.groups[0].topics[0].partitions
    return ErrorCode(found.error_code), found.committed_offset


OneBroker = Callable[..., Awaitable[None]]
WITH_ONE_BROKER: Final[tuple[OneBroker, ...]] = (
    a_late_end,
    a_late_addition,
    a_late_batch,
    a_poll_while_a_transaction_is_open,
    a_position_after_an_abort,
)


def scripted(story: OneBroker, *, is_new: bool) -> Callable[[int], None]:
    """A script of the story, under its name and protocol."""

    def script(seed: int) -> None:
        serve_and(partial(story, is_new=is_new), seed=seed + 1, **SETTINGS)

    script.__name__ = f"{story.__name__}_of_protocol_{2 if is_new else 1}"
    script.__doc__ = story.__doc__
    return script


def a_transaction_of_the_last_epoch_ends(seed: int) -> None:
    """Jepsen: a producer with epoch 32766 whose EndTxn (abort) arrives when its transaction has timed out left the
    transaction open. The coordinator ends it with epoch 32767, the client gets no such epoch, and a new id follows.
    """
    for version in (1, 2):
        stage = TransactionStage(transaction_version=version)
        stage.load({TID: Transaction(7, LAST_EPOCH, TIMEOUT_MS, ONGOING, WALL_MS, frozenset({A}), WALL_MS)})
        stage.wait(TIMEOUT_MS + 10_000)
        assert stage.state() == "PrepareAbort", f"transaction.version {version}: {stage.state()}"
        late = stage.end(7, LAST_EPOCH, commits=False, protocol=version)
        waits = ErrorCode.CONCURRENT_TRANSACTIONS if version == 2 else ErrorCode.PRODUCER_FENCED
        assert late == ProducerIdAnswer(waits), late
        assert [(each.producer_epoch, each.is_commit) for each in stage.commands] == [(EPOCH_MAX, False)]
        stage.write_markers()
        again = stage.end(7, LAST_EPOCH, commits=False, protocol=version)
        assert isinstance(again, ProducerIdAnswer) and again.producer_epoch != EPOCH_MAX, again
        first = stage.init()
        assert isinstance(first, ProducerIdAnswer) and (first.error, first.producer_id) == (NONE, 1_000), first
        assert stage.add(first.producer_id, first.producer_epoch, A, protocol=version) is NONE
        stage.end(first.producer_id, first.producer_epoch, commits=True, protocol=version)
        stage.write_markers()
        assert stage.state() == "CompleteCommit"


def an_end_that_is_repeated_while_it_completes_is_answered(seed: int) -> None:
    """The partition's leader is down, so its marker waits. The client repeats its EndTxn on another connection, with a
    new correlation id: it is told CONCURRENT_TRANSACTIONS each time, and the outcome once the leader is back.
    """
    for is_new in IS_NEW:
        with Cluster(seed + 1, nodes=3, transaction_state_log_num_partitions=1) as cluster:
            cluster.live(partial(repeated_end, is_new=is_new))


async def repeated_end(cluster: Cluster, *, is_new: bool) -> None:
    await cluster.settled()
    coordinator = await until_coordinated(cluster.ask_any, ID, TRANSACTION)
    at_coordinator = await cluster.connect(coordinator)
    producer = Producer(at_coordinator, wall_ms_of(cluster), is_new=is_new)
    assert await until_done(producer.init) is NONE
    await cluster.create("t", partitions=3, replication_factor=1)
    index = [await cluster.led("t", each) != coordinator for each in range(3)].index(True)
    leader = cluster.nodes[await cluster.led("t", index)]
    if not is_new:
        assert await until_done(partial(first_of_addition, producer, index)) is NONE
    producer.client = await cluster.connect(leader.id)
    assert await until_done(partial(first_of_send, producer, index)) is NONE
    request, version = end_of(producer, commits=True), 5 if is_new else 4
    leader.kill()
    assert (await at_coordinator.ask(request, version)).error_code == NONE
    for _ in range(3):
        again = await cluster.connect(coordinator)
        async with asyncio.timeout(5):
            answer = ErrorCode((await again.ask(request, version)).error_code)
        assert answer is ErrorCode.CONCURRENT_TRANSACTIONS, f"an end that is repeated is answered with {answer.name}"
        again.close()
    leader.boot()

    async def outcome() -> ErrorCode:
        return ErrorCode((await at_coordinator.ask(request, version)).error_code)

    assert await until_done(outcome) is NONE


def wall_ms_of(cluster: Cluster) -> Callable[[], int]:
    node = next(node for node in cluster.nodes.values() if node.broker is not None)
    assert node.broker is not None
    return node.broker.environment.wall_ms


def a_first_batch_that_is_repeated_is_there_once(seed: int) -> None:
    """The answer to an idempotent producer's first batch is lost, and its leader with it. The next leader knows the
    batch: offset 0 is acknowledged for one record alone, and the next batch is behind it.
    """

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", min_insync_replicas=2)
        given = await cluster.ask_any(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 5)
        assert given.error_code == NONE
        numbered = partial(batch, producer_id=given.producer_id, producer_epoch=given.producer_epoch)
        first, second = numbered("a", base_sequence=0), numbered("b", base_sequence=1)
        leader_id = await cluster.led("t")
        client = await cluster.connect(leader_id)
        assert (await client.produce("t", first)).base_offset == 0
        cluster.nodes[leader_id].kill()
        await cluster.until(lambda: leads_elsewhere(cluster, leader_id), "another leader")
        for records, offset in ((first, 0), (second, 1), (second, 1), (first, 0)):
            answer = await produced(cluster, records)
            assert answer == (NONE, offset), f"{answer}, and the batch is at {offset}"
        cluster.nodes[leader_id].boot()
        await cluster.settled()
        client = await cluster.connect(await cluster.led("t"))
        assert await read(client, isolation_level=0) == [b"a", b"b"]

    with Cluster(seed + 1, nodes=3) as cluster:
        cluster.live(story)


def leads_elsewhere(cluster: Cluster, former: int) -> bool:
    """Whether another node that is up leads the partition."""
    for node in cluster.nodes.values():
        if node.id != former and node.is_up and node.broker is not None:
            found = node.broker.replicas.get("t", 0)
            if found is not None and found.is_leader:
                return True
    return False


async def produced(cluster: Cluster, records: bytes) -> tuple[ErrorCode, int]:
    """What a leader answers that serves the batch at last."""
    for _ in range(200):
        with suppress(Closed, OSError, TimeoutError):
            client = await cluster.connect(await cluster.led("t"))
            answer = await client.produce("t", records)
            client.close()
            error = ErrorCode(answer.error_code)
            if error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER or error is NONE:
                return NONE, answer.base_offset
        await asyncio.sleep(0.1)
    raise AssertionError(f"not acknowledged: {error.name}")


ALL: Final = (
    *(scripted(story, is_new=is_new) for story in WITH_ONE_BROKER for is_new in IS_NEW),
    a_transaction_of_the_last_epoch_ends,
    an_end_that_is_repeated_while_it_completes_is_answered,
    a_first_batch_that_is_repeated_is_there_once,
)
