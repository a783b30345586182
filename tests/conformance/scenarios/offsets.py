"""Scenarios of offsets: where a log begins and ends, and what groups have committed."""

from __future__ import annotations

import time

from tests.conformance.record import Record
from tests.conformance.scenario import Scenario
from tests.conformance.session import Session, expect, same_records

# An hour ago: retention would take records that are much older.
BASE_MS = int(time.time()) * 1000 - 3_600_000


def ends(session: Session) -> None:
    client = session.client
    topic = session.topic()
    session.observe("empty", [client.list_offsets(topic, 0, at) for at in ("earliest", "latest")])
    client.produce(topic, [Record(b"%d" % index) for index in range(7)])
    session.observe("seven", [client.list_offsets(topic, 0, at) for at in ("earliest", "latest")])


def by_timestamp(session: Session) -> None:
    session.needs("timestamps")
    client = session.client
    topic = session.topic()
    for offset, after_ms in enumerate((1_000, 3_000, 2_000, 4_000)):
        client.produce(topic, [Record(b"%d" % offset, timestamp_ms=BASE_MS + after_ms)])
    for after_ms in (0, 1_000, 1_001, 2_500, 3_500, 4_001):
        session.observe(f"at {after_ms}", client.list_offsets(topic, 0, BASE_MS + after_ms))


def max_timestamp(session: Session) -> None:
    session.needs("timestamps")
    client = session.client
    topic = session.topic()
    session.observe("empty", client.list_offsets(topic, 0, "max-timestamp"))
    for offset, after_ms in enumerate((1_000, 3_000, 2_000)):
        client.produce(topic, [Record(b"%d" % offset, timestamp_ms=BASE_MS + after_ms)])
    session.observe("max", client.list_offsets(topic, 0, "max-timestamp"))


def committed(session: Session) -> None:
    client = session.client
    topic, group = session.topic(2), session.name("g")
    session.observe("nothing committed", sorted(client.fetch_offsets(group).values()))
    client.alter_offsets(group, {(topic, 0): 5, (topic, 1): 0})
    found = client.fetch_offsets(group)
    expect(found == {(topic, 0): 5, (topic, 1): 0}, f"committed 5 and 0, found {found}")
    client.alter_offsets(group, {(topic, 0): 2})
    found = client.fetch_offsets(group)
    expect(found == {(topic, 0): 2, (topic, 1): 0}, f"committed 2 and 0, found {found}")


def deleted(session: Session) -> None:
    client = session.client
    topic, group = session.topic(2), session.name("g")
    client.alter_offsets(group, {(topic, 0): 5, (topic, 1): 6})
    client.delete_offsets(group, topic, 0)
    found = client.fetch_offsets(group)
    expect(found == {(topic, 1): 6}, f"one of two was deleted, found {found}")
    session.refusal("of an unknown group", lambda: client.delete_offsets(session.name("unknown"), topic, 0))


def out_of_range(session: Session) -> None:
    client = session.client
    topic = session.topic()
    sent = [Record(b"%d" % index) for index in range(5)]
    client.produce(topic, sent)
    same_records(client.consume(topic, offset=1_000, count=5, reset="earliest"), sent, timed=False)


def out_of_range_without_reset(session: Session) -> None:
    session.needs("reset none")
    topic = session.topic()
    session.client.produce(topic, [Record(b"0")])
    session.refusal("read", lambda: session.client.consume(topic, offset=1_000, count=1, reset="none"))


def message_too_large(session: Session) -> None:
    client = session.client
    topic = session.topic(max_message_bytes="2000")
    session.refusal("ten thousand bytes", lambda: client.produce(topic, [Record(b"x" * 10_000)]))
    client.produce(topic, [Record(b"x" * 100)])
    same_records(client.consume(topic, count=1), [Record(b"x" * 100)], timed=False)


def key_for_compaction(session: Session) -> None:
    topic = session.topic(cleanup_policy="compact")
    session.refusal("a record without a key", lambda: session.client.produce(topic, [Record(b"v", None)]))
    session.refusal("a record with a key", lambda: session.client.produce(topic, [Record(b"v", b"k")]))


def transactional(session: Session) -> None:
    session.refusal("init transactions", lambda: session.client.call("init_transactions", id=session.name("x")))


SCENARIOS = (
    Scenario("offsets-ends", "earliest and latest", ends),
    Scenario("offsets-by-timestamp", "the first record at or after a time", by_timestamp),
    Scenario("offsets-max-timestamp", "the record with the greatest timestamp", max_timestamp),
    Scenario("offsets-committed", "offsets written and read by an administrator", committed),
    Scenario("offsets-deleted", "offsets deleted by an administrator", deleted),
    Scenario("offsets-reset", "a fetch out of range starts over at the earliest", out_of_range),
    Scenario("error-out-of-range", "a fetch out of range without a reset policy", out_of_range_without_reset),
    Scenario("error-too-large", "a message above max.message.bytes", message_too_large),
    Scenario("error-no-key", "a record without a key for a compacted topic", key_for_compaction),
    Scenario("error-transactional", "a transactional producer", transactional),
)
