"""Erasure of records (decision 36). Clients send erase orders in Produce, and read receipts by DescribeConfigs of the
topic.

DIVERGES: Apache Kafka refuses every control batch of a client. Here an erase order is appended if `moldau.erase.enable`
is on and the client has DELETE on the topic and ALTER on the cluster, besides the WRITE that a produce needs. The
leader writes the time and the principal into the order.

Each broker with a replica has a receipt of the order, as read-only settings `moldau.erase.PARTITION.ORDER.PAGE`:

    moldau.erase.0.0a1b….0    the first 30,000 characters of the receipt, JSON; an empty value behind its end

DIVERGES: Apache Kafka has no such settings. As `moldau.history` of a group they are given only to a request that names
them. A receipt comes in pages because Java clients read no string of 32 KiB.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from moldau.broker.apis.needs import on_cluster, on_topic
from moldau.broker.config.describing import ConfigEntry, information_entry
from moldau.protocol.erase_orders import (
    RECEIPT_PAGES_MAX,
    EraseOrder,
    erase_order_batch,
    problem_of_order,
    read_sent_order,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_batch import ATTRIBUTES_POSITION, CONTROL_BIT, HEADER_SIZE
from moldau.replication.partition import ACKS_ALL
from moldau.security.access import AclOperation
from moldau.storage.files.log_paths import receipt_path
from moldau.storage.log.append import AppendResult

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext
    from moldau.protocol.primitives import BytesLike
    from moldau.replication.partition import Partition

log = logging.getLogger("moldau.audit")

ERASE_ENABLE: Final = "moldau.erase.enable"
PAGE_SIZE: Final = 30_000
DOCUMENTATION: Final = "What an erase order removed from the replica of this broker: JSON, for `moldau erase`."
_NAME: Final = re.compile(r"moldau\.erase\.(\d{1,10})\.([0-9a-f]{32})\.(\d{1,6})")


def append_order(
    services: Services,
    context: RequestContext,
    partition: Partition,
    records: BytesLike,
    acks: int,
    now_ms: int,
    refused: AppendResult,
) -> AppendResult:
    """Append an erase order, which a client sent as a control batch, to the log if the client may erase the records it
    names. Returns the result of the append. A batch that is not a valid erase order gets `refused`, the log's refusal
    of the batch; an order that is not allowed or too large gets an error of its own."""
    if len(records) < HEADER_SIZE or not records[ATTRIBUTES_POSITION + 1] & CONTROL_BIT:
        return refused
    order = read_sent_order(bytes(records))
    if isinstance(order, str):
        refused.error_message = order
        return refused
    error, message = _refusal(services, context, partition, order, acks)
    if error is ErrorCode.NONE:
        order.asked_ms, order.principal = now_ms, str(context.principal)
        batch = erase_order_batch(order, now_ms)
        if len(batch) <= partition.log.config.max_message_bytes:
            result = partition.append_internal(batch, now_ms)
            _write_line(context, partition, order, result)
            return result
        error = ErrorCode.MESSAGE_TOO_LARGE
        message = f"an erase order of {len(batch)} bytes is above max.message.bytes: send several orders"
    return AppendResult(error, -1, -1, -1, partition.log.log_start_offset, message)


def _refusal(
    services: Services, context: RequestContext, partition: Partition, order: EraseOrder, acks: int
) -> tuple[ErrorCode, str]:
    topic, its_log = partition.topic, partition.log
    if not on_topic(AclOperation.DELETE, topic).is_met(context.access):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{context.principal} has no DELETE on topic {topic}"
    if not on_cluster(AclOperation.ALTER).is_met(context.access):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{context.principal} has no ALTER on the cluster"
    if not services.settings.config.flag(ERASE_ENABLE):
        return ErrorCode.POLICY_VIOLATION, f"{ERASE_ENABLE} is false: moldau config set brokers {ERASE_ENABLE}=true"
    if acks != ACKS_ALL:
        return ErrorCode.INVALID_REQUIRED_ACKS, "an erase order is produced with acks=all"
    last_offset = order.runs[-1].last_offset if order.runs else -1
    if partition.high_watermark <= last_offset < its_log.end_offset:
        return ErrorCode.OFFSET_NOT_AVAILABLE, f"offset {last_offset} is not known to be committed yet"
    flaw = problem_of_order(order, partition.high_watermark)
    return (ErrorCode.NONE, "") if flaw is None else (ErrorCode.INVALID_RECORD, flaw)


def _write_line(context: RequestContext, partition: Partition, order: EraseOrder, result: AppendResult) -> None:
    """Write a line about an erase order to the audit log. It has no record, and only the hash of the predicate."""
    log.info(
        "%s ordered the erasure of %d runs of offsets in %s-%d, as order %s at offset %d, predicate SHA-256 %s: %s",
        context.principal,
        len(order.runs),
        partition.topic,
        partition.index,
        order.order_id.hex(),
        result.base_offset,
        order.predicate_hash.hex(),
        result.error.name,
    )


def receipt_entries(services: Services, topic: str, names: Iterable[str]) -> list[ConfigEntry]:
    """Read the receipt pages that the names of settings in `names` ask for. A partition without a replica on this
    broker has none."""
    receipt = cache(partial(_receipt, services))
    entries = []
    for match in [found for name in names if (found := _NAME.fullmatch(name))][:RECEIPT_PAGES_MAX]:
        partition = services.replicas.get(topic, int(match[1]))
        if partition is not None:
            begin = int(match[3]) * PAGE_SIZE
            page = receipt(partition.log.directory, match[2])[begin : begin + PAGE_SIZE]
            entries.append(information_entry(match[0], page.decode(), DOCUMENTATION))
    return entries


def _receipt(services: Services, directory: str, order_id: str) -> bytes:
    """The whole receipt of an erase order for one partition; empty if this broker has not begun the order."""
    try:
        return bytes(services.environment.fs.read(receipt_path(directory, order_id)))
    except OSError:
        return b""
