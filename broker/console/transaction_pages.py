"""The pages about transactions and producers: transactions that hang come first.

A transaction hangs where a partition has it open and no coordinator knows it any more: nothing will end it, and no
read_committed consumer gets past its first record. It shows as a last stable offset below the high watermark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from moldau.broker.console.kafka_client import Unanswered
from moldau.broker.console.page import SLICE, Page, Refusal, Rows, Visit, choose, error_name, gather
from moldau.broker.console.topic_pages import LATEST, READ_COMMITTED, Partition, offsets_of, visible_topic
from moldau.protocol.messages import describe_transactions, list_transactions
from moldau.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from moldau.security.access import AclOperation, ResourceKind

SEARCHED_MAX: Final = 10_000
"""The most partitions that are searched for open transactions."""
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
STATES: Final = ("", *OPEN_STATES, "CompleteCommit", "CompleteAbort", "Empty", "Dead")


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that a partition has open."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    written_ms_ago: int
    """The age of the producer's last record in the partition."""


@dataclass(frozen=True, slots=True)
class TransactionRow:
    id: str
    state: str
    producer_id: int
    producer_epoch: int
    open_ms: int | None
    """How long it has been open; None where it is not."""
    timeout_ms: int
    partitions: list[str]
    coordinator: int
    error: str


@dataclass(frozen=True, slots=True)
class TransactionList:
    q: str
    state: str
    hanging: list[OpenTransaction]
    is_searched: bool
    """Whether it is known which transactions hang: every coordinator has answered a user that may see all."""
    searched: int | None
    """The partitions that were searched, where there are more."""
    transactions: Rows[TransactionRow]
    errors: list[str]


async def describe_all(visit: Visit) -> TransactionList:
    state = visit.choice("state", STATES)
    listed, errors = await _listed(visit)
    by_id = {name: broker for name, (found, broker) in listed.items() if state in ("", found.transaction_state)}
    names, total, next_page = await choose(by_id, visit, lambda name: True)
    access = visit.client.access
    sees_all = access.is_unrestricted or access.decision_for_all(AclOperation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)
    hanging: list[OpenTransaction] = []
    searched = None
    if sees_all and not errors:
        known = {found.producer_id for found, _ in listed.values() if found.transaction_state in OPEN_STATES}
        opened, searched = await _opened(visit)
        hanging = [each for each in opened if each.producer_id not in known]
        hanging.sort(key=lambda each: -each.written_ms_ago)
    rows = await _described(visit, {name: by_id[name] for name in names})
    rows.sort(key=lambda each: (-(each.open_ms or -1), each.id))
    return TransactionList(
        visit.field("q"),
        state,
        hanging,
        bool(sees_all) and not errors,
        searched,
        Rows(rows, total, next_page),
        errors,
    )


async def _listed(visit: Visit) -> tuple[dict[str, tuple[list_transactions.TransactionState, int]], list[str]]:
    """The transactional ids that the user may describe, each with its coordinator; and what could not be listed."""
    found: dict[str, tuple[list_transactions.TransactionState, int]] = {}
    errors: list[str] = []

    async def ask(broker_id: int) -> None:
        try:
            answer = await visit.client.ask(
                list_transactions.ListTransactionsRequest(),
                list_transactions.ListTransactionsResponse,
                broker_id=broker_id,
            )
        except Unanswered as unanswered:
            errors.append(str(unanswered))
            return
        if answer.error_code:
            errors.append(f"broker {broker_id}: {error_name(answer.error_code)}")
        found.update((each.transactional_id, (each, broker_id)) for each in answer.transaction_states)

    brokers = visit.ports.cluster.image.cluster.brokers
    await gather(*(ask(broker_id) for broker_id in sorted(brokers) if not brokers[broker_id].fenced))
    return found, errors


async def _described(visit: Visit, coordinators: dict[str, int]) -> list[TransactionRow]:
    by_broker: dict[int, list[str]] = {}
    for name, broker_id in coordinators.items():
        by_broker.setdefault(broker_id, []).append(name)
    now_ms = visit.ports.environment.wall_ms()
    rows: list[TransactionRow] = []

    async def ask(broker_id: int) -> None:
        request = describe_transactions.DescribeTransactionsRequest(transactional_ids=by_broker[broker_id])
        answer = await visit.client.ask(
            request, describe_transactions.DescribeTransactionsResponse, broker_id=broker_id
        )
        for each in answer.transaction_states:
            is_open = each.transaction_start_time_ms >= 0 and each.transaction_state in OPEN_STATES
            rows.append(
                TransactionRow(
                    each.transactional_id,
                    each.transaction_state,
                    each.producer_id,
                    each.producer_epoch,
                    max(now_ms - each.transaction_start_time_ms, 0) if is_open else None,
                    each.transaction_timeout_ms,
                    [f"{topic.topic}-{index}" for topic in each.topics for index in topic.partitions],
                    broker_id,
                    error_name(each.error_code),
                )
            )

    await gather(*(ask(broker_id) for broker_id in by_broker))
    return rows


async def _opened(visit: Visit) -> tuple[list[OpenTransaction], int | None]:
    """The transactions that are open in partitions whose last stable offset is below the high watermark, of the topics
    that the user may read. The second is the number of the partitions that were searched, where there are more.
    """
    topics = visit.ports.cluster.image.topics
    keys: list[Partition] = []
    has_more = False
    for count, topic in enumerate(topics.by_id.values(), 1):
        if visit.may(AclOperation.READ, ResourceKind.TOPIC, topic.name):
            keys += ((topic.name, index) for index in topic.partitions)
        if count % SLICE == 0:
            await asyncio.sleep(0)
        if len(keys) > SEARCHED_MAX:
            has_more = True
            break
    del keys[SEARCHED_MAX:]
    stable, ends = await gather(
        offsets_of(visit.client, keys, LATEST, READ_COMMITTED), offsets_of(visit.client, keys, LATEST)
    )
    behind = [key for key in keys if stable.get(key, 0) < ends.get(key, 0)]
    now_ms = visit.ports.environment.wall_ms()
    opened = [
        OpenTransaction(
            *key,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.current_txn_start_offset,
            max(now_ms - each.last_timestamp, 0),
        )
        for key, states in (await producers_of(visit, behind)).items()
        for each in states
        if each.current_txn_start_offset >= 0
    ]
    return opened, SEARCHED_MAX if has_more else None


async def producers_of(visit: Visit, partitions: Iterable[Partition]) -> dict[Partition, list[ProducerState]]:
    """The active producers of partitions, from their leaders; partitions whose leader does not tell are left out."""
    topics = visit.ports.cluster.image.topics
    by_leader: dict[int, dict[str, list[int]]] = {}
    for name, index in partitions:
        partition = topics.partition(name, index)
        if partition is not None and partition.leader >= 0:
            by_leader.setdefault(partition.leader, {}).setdefault(name, []).append(index)
    found: dict[Partition, list[ProducerState]] = {}

    async def ask(leader: int) -> None:
        named = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_leader[leader].items()]
        try:
            answer = await visit.client.ask(
                DescribeProducersRequest(topics=named), DescribeProducersResponse, broker_id=leader
            )
        except Unanswered:
            return
        for topic in answer.topics:
            for each in topic.partitions:
                if not each.error_code:
                    found[topic.name, each.partition_index] = each.active_producers

    await gather(*(ask(leader) for leader in by_leader))
    return found


@dataclass(frozen=True, slots=True)
class ProducerRow:
    producer_id: int
    producer_epoch: int
    last_sequence: int
    written_ms_ago: int
    transaction_offset: int | None
    """The first offset of the transaction that it has open; None for none."""


@dataclass(frozen=True, slots=True)
class ProducerList:
    topic: str
    partition: int
    producers: list[ProducerRow]
    left_out: int


async def describe_producers(visit: Visit) -> ProducerList:
    name, text = visit.variables["name"], visit.variables["partition"]
    topic = visible_topic(visit, name)
    visit.require(AclOperation.READ, ResourceKind.TOPIC, name)
    if not text.isdecimal() or int(text) not in topic.partitions:
        raise Refusal(404, f"topic {name} has no partition {text}")
    key = (name, int(text))
    found = (await producers_of(visit, [key])).get(key)
    if found is None:
        raise Refusal(503, f"the leader of {name}-{text} does not answer")
    now_ms = visit.ports.environment.wall_ms()
    shown = sorted(found, key=lambda each: (each.current_txn_start_offset < 0, -each.last_timestamp))[:SLICE]
    rows = [
        ProducerRow(
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            max(now_ms - each.last_timestamp, 0),
            each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
        )
        for each in shown
    ]
    return ProducerList(*key, rows, len(found) - len(rows))


PAGES: Final = (
    Page("/transactions", "transactions.html", describe_all),
    Page("/topics/{name}/{partition}/producers", "producers.html", describe_producers),
)
