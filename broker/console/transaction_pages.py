"""The pages about transactions and producers. Hanging transactions come first.

A transaction hangs if it is open in a partition and its coordinator will write no marker there. Nothing ends it, and no
read_committed consumer reads past its first record. It shows as a last stable offset below the high watermark.

    open in a partition ──▶ what coordinators know of its producer id ──▶ still open in the partition? ──▶ it hangs
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from moldau.broker.console.kafka_client import Unanswered
from moldau.broker.console.page import (
    SLICE,
    Page,
    PageRequest,
    Refusal,
    Rows,
    choose_names,
    decimal,
    error_name,
    gather_results,
)
from moldau.broker.console.partitions import LATEST, READ_COMMITTED, Partition, offsets_of, producers_of
from moldau.broker.console.topic_pages import visible_topic
from moldau.protocol.messages import describe_transactions, list_transactions
from moldau.protocol.messages.describe_transactions import TransactionState
from moldau.protocol.messages.list_transactions import TransactionState as ListedTransaction
from moldau.security.access import AclOperation, ResourceKind

SEARCHED_MAX: Final = 10_000
"""The most partitions that are searched for open transactions."""
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
STATES: Final = ("", *OPEN_STATES, "CompleteCommit", "CompleteAbort", "Empty", "Dead")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OpenTransaction:
    """A transaction that is open in a partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    written_ms_ago: int
    """The age of the producer's last record in the partition."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TransactionRow:
    id: str
    state: str
    producer_id: int
    producer_epoch: int
    open_ms: int | None
    """The time (ms) since the transaction began; None if it is not open."""
    timeout_ms: int
    partitions: list[str]
    coordinator: int
    error: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TransactionList:
    q: str
    state: str
    hanging: list[OpenTransaction]
    is_searched: bool
    """Whether `hanging` is known: every coordinator has answered, and the user may describe all transactions."""
    searched: int | None
    """The number of partitions that were searched for open transactions; None if all were."""
    transactions: Rows[TransactionRow]
    errors: list[str]


async def describe_all(visit: PageRequest) -> TransactionList:
    state = visit.choice("state", STATES)
    access = visit.client.access
    sees_all = access.is_unrestricted or access.decision_for_all(AclOperation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)
    # The partitions are asked first: what was open then is known to its coordinator when that is asked.
    opened, searched = await _opened(visit) if sees_all else ([], None)
    listed, errors = await _listed(visit)
    by_id = {name: broker for name, (found, broker) in listed.items() if state in ("", found.transaction_state)}
    names, total, next_page = await choose_names(by_id, visit, lambda name: True)
    hanging: list[OpenTransaction] = []
    if sees_all and not errors:
        hanging = await _hanging(visit, opened, listed)
        hanging.sort(key=lambda each: -each.written_ms_ago)
    states = await _described(visit, {name: by_id[name] for name in names})
    rows = [_row(visit, each, by_id[each.transactional_id]) for each in states]
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


async def _hanging(
    visit: PageRequest, opened: list[OpenTransaction], listed: Mapping[str, tuple[ListedTransaction, int]]
) -> list[OpenTransaction]:
    """The transactions among `opened` that hang, because their coordinators will write no marker to the partition.
    Raises `Unanswered`.

    The leaders are asked again at the end, because a transaction may have ended, and another one begun, in the
    meantime.
    """
    if not opened:
        return []
    producer_ids = {each.producer_id for each in opened}
    coordinators = {name: broker for name, (found, broker) in listed.items() if found.producer_id in producer_ids}
    states = [each for each in await _described(visit, coordinators) if not each.error_code]
    left = [each for each in opened if not any(is_ending(state, each) for state in states)]
    keys = dict.fromkeys((each.topic, each.partition) for each in left)
    still = {
        (*key, each.producer_id, each.producer_epoch, each.current_txn_start_offset)
        for key, producers in (await producers_of(visit.client, keys)).items()
        for each in producers
    }
    return [
        each
        for each in left
        if (each.topic, each.partition, each.producer_id, each.producer_epoch, each.first_offset) in still
    ]


def is_ending(state: TransactionState, opened: OpenTransaction) -> bool:
    """Whether a coordinator whose transaction has this state will write the marker that ends `opened`. The transaction
    must still have the partition, because a coordinator removes a partition only after its marker. The producer epoch
    must not be older than that of `opened`, because the partition would refuse the marker.
    """
    return (
        state.producer_id == opened.producer_id
        and state.producer_epoch >= opened.producer_epoch
        and state.transaction_state in OPEN_STATES
        and any(each.topic == opened.topic and opened.partition in each.partitions for each in state.topics)
    )


async def _listed(visit: PageRequest) -> tuple[dict[str, tuple[ListedTransaction, int]], list[str]]:
    """List the transactions that the user may describe, by transactional id, each with the node id of its coordinator.
    The second value has the errors of brokers that did not list theirs.
    """
    found: dict[str, tuple[ListedTransaction, int]] = {}
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
    await gather_results(*(ask(broker_id) for broker_id in sorted(brokers) if not brokers[broker_id].fenced))
    return found, errors


async def _described(visit: PageRequest, coordinators: Mapping[str, int]) -> list[TransactionState]:
    """Describe transactions by requests to their coordinators. Raises `Unanswered`."""
    by_broker: dict[int, list[str]] = {}
    for name, broker_id in coordinators.items():
        by_broker.setdefault(broker_id, []).append(name)
    found: list[TransactionState] = []

    async def ask(broker_id: int) -> None:
        request = describe_transactions.DescribeTransactionsRequest(transactional_ids=by_broker[broker_id])
        answer = await visit.client.ask(
            request, describe_transactions.DescribeTransactionsResponse, broker_id=broker_id
        )
        found.extend(answer.transaction_states)

    await gather_results(*(ask(broker_id) for broker_id in by_broker))
    return found


def _row(visit: PageRequest, state: TransactionState, coordinator: int) -> TransactionRow:
    is_open = state.transaction_start_time_ms >= 0 and state.transaction_state in OPEN_STATES
    age_ms = max(visit.ports.environment.wall_ms() - state.transaction_start_time_ms, 0)
    return TransactionRow(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        age_ms if is_open else None,
        state.transaction_timeout_ms,
        [f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions],
        coordinator,
        error_name(state.error_code),
    )


async def _opened(visit: PageRequest) -> tuple[list[OpenTransaction], int | None]:
    """The open transactions in partitions whose last stable offset is below the high watermark. Topics that the user
    may not read are left out. The second value is the number of partitions that were searched, or None if all were.
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
    stable, ends = await gather_results(
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
        for key, states in (await producers_of(visit.client, behind)).items()
        for each in states
        if each.current_txn_start_offset >= 0
    ]
    return opened, SEARCHED_MAX if has_more else None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProducerRow:
    producer_id: int
    producer_epoch: int
    last_sequence: int
    written_ms_ago: int
    transaction_offset: int | None
    """The first offset of the producer's open transaction; None if it has none."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProducerList:
    topic: str
    partition: int
    producers: list[ProducerRow]
    left_out: int


async def describe_producers(visit: PageRequest) -> ProducerList:
    name, text = visit.variables["name"], visit.variables["partition"]
    topic = visible_topic(visit, name)
    visit.require(AclOperation.READ, ResourceKind.TOPIC, name)
    index = decimal(text)
    if index is None or index not in topic.partitions:
        raise Refusal(404, f"topic {name} has no partition {text}")
    key = (name, index)
    found = (await producers_of(visit.client, [key])).get(key)
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
