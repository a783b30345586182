"""The command `moldau erase --verify`: reads every replica that answers, over both tiers, and checks that it has none
of the erased records. With --storage it also reads each object in remote storage.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from moldau.broker.cli.daily.client import Partition
from moldau.broker.cli.daily.erasure.receipts import check_signature, read_receipt
from moldau.broker.cli.daily.erasure.searching import filter_from, has_filter, log_bounds, predicate_hash, records_at
from moldau.broker.cli.daily.erasure.tables import FollowingTables, check_arguments
from moldau.broker.cli.daily.failures import EXIT_FAILED, Failure, raise_wrong_arguments
from moldau.broker.cli.daily.session import Session
from moldau.broker.cli.invocation import CommandError
from moldau.broker.reasons.words import count_with_noun
from moldau.protocol.erase_orders import Run
from moldau.protocol.record_builder import Record
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.erasure.erasing import runs_overlap, union_of_runs

COLUMNS: Final = ("partition", "broker", "state", "records_read", "records_left", "newer")


def verify(session: Session) -> int:
    """Check the receipt of an erasure (`--verify`). Returns 0 if every replica was read and none has a record of the
    receipt, and 1 otherwise.

    Without filters only the offsets in the receipt are read. If the filters of the erasure are given, whole partitions
    are read, and records that pass the filters but are newer than the erase orders are counted separately.
    """
    given, client = session.arguments, session.client
    check_arguments(given)
    receipt = read_receipt(given.verify)
    if given.sign_key is not None:
        check_signature(receipt, given.sign_key)
    if given.sql is not None:
        raise_wrong_arguments(
            "--verify reads the offsets of the receipt: run the command with --sql again, and it counts what is left"
        )
    passes = None
    if has_filter(given):
        if predicate_hash(given, bytes.fromhex(receipt["predicate_salt"])).hex() != receipt["predicate_sha256"]:
            raise_wrong_arguments("these filters are not those of the receipt: give the same, or none")
        passes = filter_from(session)
    topic = receipt["topic"]
    if given.topic not in (None, topic):
        raise_wrong_arguments(f"the receipt is of the topic {topic}, not of {given.topic}")
    metadata = client.known_topics([topic])[topic]
    if receipt["cluster_id"] != client.cluster_id:
        raise Failure(f"the receipt is of cluster {receipt['cluster_id']}, and this is {client.cluster_id}")
    topic_id = uuid_text(client.topic_id(topic))
    if receipt.get("topic_id", topic_id) != topic_id:  # Receipts of earlier releases have none.
        raise Failure(
            f"the receipt is of the topic {topic} with the id {receipt['topic_id']}, and the id of the present one is"
            f" {topic_id}: it was deleted and created again, and has other records at the offsets of the receipt"
        )
    by_partition: dict[int, list[dict[str, Any]]] = {}
    for order in receipt["orders"]:
        by_partition.setdefault(order["partition"], []).append(order)
    rows = []
    for part in metadata.partitions:
        key = (topic, part.partition_index)
        orders = by_partition.get(part.partition_index, [])
        if not orders and passes is None:
            continue
        for node_id in part.replica_nodes:
            try:
                rows.append(_row(session, key, node_id, orders, passes))
            except CommandError as problem:
                session.note(str(problem), "yellow")
                rows.append({"partition": key[1], "broker": node_id, "state": "not read"})
        if given.storage is not None:
            rows.append(_row_of_storage(session, key, orders, passes))
    tables = FollowingTables(session, topic).checked((each["partition"], each["runs"]) for each in receipt["orders"])
    rows += tables
    session.output.rows(rows, COLUMNS)
    stored = len(tables) + sum(each["broker"] == "storage" for each in rows)
    left = sum(int(str(each.get("records_left", 0))) for each in rows)
    unread = sum(each["state"] == "not read" for each in rows)
    session.output.say(
        f"{count_with_noun(left, 'record')} of the receipt found; "
        f"{count_with_noun(len(rows) - unread - stored, 'replica')} read,"
        f" {unread} not read"
        + (", and remote storage" if given.storage is not None else "")
        + (f", and {count_with_noun(len(tables), 'table')}" if tables else "")
    )
    return EXIT_FAILED if left or unread else 0


def _row(
    session: Session, key: Partition, node_id: int, orders: list[dict[str, Any]], passes: Any
) -> dict[str, object]:
    client = session.client
    start, end = client.retry("the offsets", partial(log_bounds, client, [key]))[key]
    is_left, runs = _left_of(orders, passes, end)
    if passes is None:
        start, end = max(start, runs[0].first), min(end, runs[-1].last + 1)
    read = left = newer = 0
    for record in records_at(client, node_id, key, start, end):
        read += 1
        if is_left(record):
            left += 1
        elif passes is not None and passes(record):
            newer += 1
    return _stated(key, node_id, read, left) | {"newer": newer}


def _row_of_storage(session: Session, key: Partition, orders: list[dict[str, Any]], passes: Any) -> dict[str, object]:
    from moldau.broker.cli.daily.erasure.stored_objects import counts_in
    from moldau.storage.tiered.metadata.remote_segment import RemotePartition

    client, (topic, index) = session.client, key
    _, end = client.retry("the offsets", partial(log_bounds, client, [key]))[key]
    is_left, _ = _left_of(orders, passes, end)
    partition = RemotePartition(topic, client.topic_id(topic), index)
    return _stated(key, "storage", *counts_in(session.arguments, client.cluster_id or "", partition, is_left))


def _left_of(orders: list[dict[str, Any]], passes: Any, end: int) -> tuple[Callable[[Record], bool], list[Run]]:
    """Return a function that tells whether a record should have been erased, and the offset runs of all orders,
    sorted and disjoint.

    A record should have been erased if an order names its offset. So should one that passes the filters `passes` and is
    before the last order, or before `end` if there are no orders. `passes` is None if no filters were given.
    """
    ordered_end = max((order["offset"] for order in orders), default=end)
    runs = union_of_runs([Run(*each) for each in order["runs"]] for order in orders)

    def is_left(record: Record) -> bool:
        is_named = runs_overlap(runs, record.offset, record.offset + 1)
        return is_named or (passes is not None and record.offset < ordered_end and passes(record))

    return is_left, runs


def _stated(key: Partition, place: int | str, read: int, left: int) -> dict[str, object]:
    state = "has records" if left else "clean"
    return {"partition": key[1], "broker": place, "state": state, "records_read": read, "records_left": left}
