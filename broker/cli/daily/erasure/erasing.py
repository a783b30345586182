"""The action `moldau erase`: searches the records, sends an erase order to the leader of each partition, and waits
until every replica has carried it out.
"""

from __future__ import annotations

import json
import secrets
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.cli.daily.client import Client, Partition
from moldau.broker.cli.daily.erasure.predicates import check_predicate, chosen_offsets
from moldau.broker.cli.daily.erasure.receipts import (
    OrderSent,
    ReplicaState,
    replica_states,
    signed_receipt,
    signing_key,
    tier_receipt,
    write_receipt,
)
from moldau.broker.cli.daily.erasure.searching import (
    filter_from,
    is_sql_alone,
    log_bounds,
    predicate_hash,
    records_at,
    runs_from,
)
from moldau.broker.cli.daily.erasure.tables import FollowingTables, check_arguments
from moldau.broker.cli.daily.failures import EXIT_FAILED, Failure, check_can_write, raise_wrong_arguments, refused
from moldau.broker.cli.daily.placement.named import named_partitions
from moldau.broker.cli.daily.records.printing import FieldsSeen
from moldau.broker.cli.daily.session import Session
from moldau.broker.reasons.words import count_with_noun
from moldau.protocol.erase_orders import Run, erase_order_batch, new_erase_order
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.tables.client.cluster import TransientError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

RUNS_OF_ORDER: Final = 4_000
"""The most runs of offsets in one erase order that this command sends, although an order may have more. The event loop
of the leader reads and checks an order in one step, which should take at most 2 ms: 1.0 ms for 4,000 runs. An order of
4,000 runs is a record of about 68 kB. If that is above the topic's max.message.bytes, it is sent in halves.
"""
POLL_S: Final = 0.2
POLL_S_MAX: Final = 5.0
POLL_SHARE: Final = 1 / 20
"""The pause before the replicas are asked again, as a share of the time since the orders were sent. It is at least
`POLL_S` and at most `POLL_S_MAX`.
"""
ASKING_SHARE: Final = 3
"""The pause before the replicas are asked again is at least this number of times the duration of the last answers, up
to `POLL_S_MAX`. Receipts may be long, and a machine under load may take half a minute to answer.
"""
WAIT_S: Final = 300
"""The time (s) without progress after which the command stops waiting. There is progress when a replica finishes, or
when a receipt has a further segment or object.
"""
SALT_SIZE: Final = 16
PRODUCE_VERSION: Final = 13
"""The version of Produce in which erase orders are sent. It names topics by their ids: an order whose topic was deleted
and created again after the search is refused, because other records are at its offsets now."""
COPIES_NOT_ERASED: Final = (
    "copies that consumers have made",
    "mirrors, dead-letter topics and topics that were derived from this one",
    "backups, snapshots that are pinned, and files that were copied",
    "directories that a broker has set aside (-stray), disks that are away, and versions that a bucket keeps",
)
TABLES: Final = "Iceberg and Delta tables that follow the topic"
OTHER_TABLES: Final = "Delta tables, and other Iceberg tables, that follow the topic"


def erase(session: Session) -> int:
    """Erase records and write the receipt (`erase`). Without `--execute` the records are only counted."""
    given, client = session.arguments, session.client
    if given.topic is None:
        raise_wrong_arguments("give a topic, or --verify RECEIPT")
    if given.storage is not None:
        raise_wrong_arguments("--storage goes with --verify: the brokers know where the remote segments are")
    check_arguments(given)
    check_predicate(given)
    sign_key = None if given.sign_key is None else signing_key(given.sign_key)
    if given.execute:
        check_can_write("--receipt", given.receipt or f"./erase-{given.topic}.json")
    seen = FieldsSeen()
    passes = filter_from(session, seen)
    keys = list(named_partitions(client, [given.topic]))
    tables = FollowingTables(session, keys[0][0])
    chosen = None
    if given.sql is not None:
        session.note(f"{keys[0][0]}: --sql reads the topic")
        chosen = chosen_offsets(session, keys[0][0])
    found: dict[Partition, list[Run]] = {}
    for key, (start, end) in log_bounds(client, keys).items():
        if chosen is not None and is_sql_alone(given):
            found[key] = runs_from(sorted(each for each in chosen[key[1]] if start <= each < end))
            continue
        session.note(f"{key[0]}-{key[1]}: searching offsets {start} to {end}")
        records = records_at(client, None, key, start, end)
        of_key = None if chosen is None else chosen[key[1]]
        found[key] = runs_from(
            each.offset for each in records if (of_key is None or each.offset in of_key) and passes(each)
        )
    seen.tell(session)
    counts = {key: sum(run.last - run.first + 1 for run in runs) for key, runs in found.items()}
    total = sum(counts.values())
    if not given.execute or not total:
        rows = [{"topic": topic, "partition": index, "records": n} for (topic, index), n in counts.items() if n]
        session.output.rows(rows, ("topic", "partition", "records"), empty="no record passes the filters")
        if total:
            session.output.say(
                f"{count_with_noun(total, 'record')} would be erased from every replica; --execute erases"
            )
        return 0
    return Erasure(session, keys[0][0], tables, sign_key).run({key: runs for key, runs in found.items() if runs}, total)


class OrderTooLarge(Failure):
    """The leader refuses an erase order because it is larger than the topic's max.message.bytes."""


class Erasure:
    """One erasure of records of a topic: sends the erase orders, waits for the replicas, and writes the receipt."""

    def __init__(self, session: Session, topic: str, tables: FollowingTables, key: Ed25519PrivateKey | None) -> None:
        self._session = session
        self._key = key
        self._tables = tables
        self._not_reached = [*COPIES_NOT_ERASED, OTHER_TABLES if session.arguments.tables else TABLES]
        self._client: Client = session.client
        self._topic, self._topic_id = topic, self._client.topic_id(topic)
        self._salt = secrets.token_bytes(SALT_SIZE)
        self._hash = predicate_hash(session.arguments, self._salt)

    def run(self, found: dict[Partition, list[Run]], total: int) -> int:
        sent = [
            order
            for key, runs in found.items()
            for first in range(0, len(runs), RUNS_OF_ORDER)
            for order in self._send(key, runs[first : first + RUNS_OF_ORDER])
        ]
        states = self._wait(sent)
        erased = self._tables.erase((each.partition, each.runs) for each in sent)
        path = self._write(sent, states, erased)
        late = sorted({each.node_id for each in states if not each.is_done})
        tiers = [told for order in sent if (told := tier_receipt(order.order_id, states))]
        behind = sorted({told["state"] for told in tiers} - {"erased"})
        self._session.output.say(f"{count_with_noun(total, 'record')} of {self._topic}: the receipt is in {path}")
        if late:
            nodes = ", ".join(map(str, late))
            self._session.note(
                f"the replicas of broker {nodes} have not erased yet; they do before they lead:"
                f" 'moldau erase --verify {path}' tells when they have",
                "yellow",
            )
        if behind:
            why = "pins of readers hold replaced objects" if "pinned" in behind else "the leader has not finished"
            self._session.note(f"remote storage may still have records: {why}; the receipt names them", "yellow")
        self._session.note(f"not reached: {'; '.join(self._not_reached)}")
        is_left = late or behind or any(each["state"] != "erased" for each in erased)
        self._session.output.object({"topic": self._topic, "records": total, "receipt": path, "late": late})
        return EXIT_FAILED if is_left else 0

    def _send(self, key: Partition, runs: list[Run]) -> list[OrderSent]:
        """Send an erase order to the leader of a partition; two with half of the runs each if it is too large for the
        topic. If the answer to a request is lost, the order is sent again with the same id: an order that is carried
        out twice finds nothing the second time.
        """
        order_id = uuid.uuid4().bytes
        batch = erase_order_batch(new_erase_order(order_id, self._hash, runs), self._session.now_ms())
        try:
            offset = self._client.retry(f"{key[0]}-{key[1]}", partial(self._sent, key, batch))
        except OrderTooLarge:
            half = len(runs) // 2
            if not half:
                raise
            return self._send(key, runs[:half]) + self._send(key, runs[half:])
        return [OrderSent(key[1], order_id.hex(), offset, runs)]

    def _sent(self, key: Partition, batch: bytes) -> int:
        client, (topic, index) = self._client, key
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=client.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    topic_id=self._topic_id, partition_data=[PartitionProduceData(index=index, records=batch)]
                )
            ],
        )
        reply = client.ask_broker(client.leader_of(key), request, ProduceResponse, version=PRODUCE_VERSION)
        (answer,) = reply.responses[0].partition_responses
        if answer.error_code in (ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            raise TransientError(f"{topic}-{index}: {ErrorCode(answer.error_code).name}")
        if answer.error_code and answer.error_message:
            status = refused(answer.error_code, None, topic).status
            name = ErrorCode(answer.error_code).name
            kind = OrderTooLarge if answer.error_code == ErrorCode.MESSAGE_TOO_LARGE else Failure
            raise kind(f"{topic}-{index}: {answer.error_message} ({name})", status=status)
        client.check(answer.error_code, None, f"{topic}-{index}")
        return answer.base_offset

    def _wait(self, sent: list[OrderSent]) -> list[ReplicaState]:
        """Wait until every replica that answers has carried out the erase orders, or until none has gone on for
        `WAIT_S`. Returns the last state of each order at each replica.
        """
        told, states = -1, list[ReplicaState]()
        progress = -1
        began = changed = time.monotonic()
        while True:
            asked = time.monotonic()
            states = replica_states(self._client, self._topic, sent, states)
            done = sum(each.is_done for each in states)
            if done != told:
                self._session.note(f"{done} of {len(states)} orders at replicas are carried out")
                told = done
            tiers = [tier for order in sent if (tier := tier_receipt(order.order_id, states))]
            is_pending = any(each["state"] == "pending" for each in tiers)
            is_over = all(each.is_done or each.problem for each in states) and not is_pending
            now = time.monotonic()
            entered = done + sum(each.segments_count for each in states) + sum(len(each["objects"]) for each in tiers)
            if entered != progress:
                progress, changed = entered, now
            if is_over or now - changed > WAIT_S:
                return states
            time.sleep(min(max(POLL_S, POLL_SHARE * (now - began), ASKING_SHARE * (now - asked)), POLL_S_MAX))

    def _write(self, sent: list[OrderSent], states: list[ReplicaState], tables: list[dict[str, Any]]) -> str:
        given = self._session.arguments
        done = [each for each in states if each.receipt is not None]
        receipt: dict[str, object] = {
            "version": 1,
            "cluster_id": self._client.cluster_id,
            "topic": self._topic,
            "topic_id": uuid_text(self._topic_id),
            "asked_by": next((each.receipt["principal"] for each in done if each.receipt), None),
            "asked_ms": next((each.receipt["asked_ms"] for each in done if each.receipt), None),
            "predicate_sha256": self._hash.hex(),
            "predicate_salt": self._salt.hex(),
            "orders": [each.stated(states) for each in sent],
            "tables": tables,
            "not_reached": self._not_reached,
        }
        path = given.receipt or f"erase-{self._topic}-{self._session.now_ms()}.json"
        write_receipt(path, json.dumps(receipt if self._key is None else signed_receipt(receipt, self._key), indent=1))
        return str(path)
