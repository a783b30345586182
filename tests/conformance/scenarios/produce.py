"""Scenarios of records that go round: every codec, shape and size."""

from __future__ import annotations

import time
from functools import partial

from tests.conformance.record import Record
from tests.conformance.scenario import Scenario
from tests.conformance.scenarios.stored import codecs_stored
from tests.conformance.session import Session, expect, same_records

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# An hour ago: retention would take records that are much older.
FIRST_TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000
LINE = b"the quick brown fox jumps over the lazy dog "


def varied(session: Session, count: int, partition: int = 0) -> list[Record]:
    """Records of every shape that the client can send, compressible, with growing timestamps."""
    records = []
    for index in range(count):
        value: bytes | None = LINE * 8 + str(index).encode()
        key: bytes | None = b"key-%d" % (index % 7)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        match index % 8:
            case 1:
                key = None
            case 2:
                headers = (("trace", b"abc"), ("kind", b"x=1"))
            case 3 if session.can("tombstones"):
                value = None
            case 4 if session.can("empty values"):
                value = b""
            case 5 if session.can("binary"):
                value, key = bytes(range(256)) * 2, bytes(range(256))
            case 6 if session.can("null headers"):
                headers = (("empty", b""), ("null", None))
            case 7 if session.can("repeated headers"):
                headers = (("again", b"1"), ("other", b"2"), ("again", b"3"))
        timestamp = FIRST_TIMESTAMP_MS + index if session.can("timestamps") else None
        records.append(Record(value, key, headers, timestamp, partition))
    return records


def round_trip(codec: str, session: Session) -> None:
    session.needs(f"codec {codec}")
    topic = session.topic(2)
    sent = {partition: varied(session, 32, partition) for partition in (0, 1)}
    session.client.produce(topic, sent[0] + sent[1], codec=codec)
    for partition, records in sent.items():
        read = session.client.consume(topic, partition=partition, count=len(records))
        same_records(read, records, timed=session.can("timestamps"))
        expect([record.offset for record in read] == list(range(len(records))), "offsets are not 0, 1, 2, ...")
    for replica in session.replicas_on_disk(topic, 0):
        stored = codecs_stored(replica)
        if not session.can("whole batches"):
            stored = stored - {"none"} or stored  # librdkafka leaves a batch alone that compression does not shrink
        expect(stored == {codec}, f"the segment holds {sorted(stored)} instead of {codec}")


def idempotent(session: Session) -> None:
    session.needs("idempotence")
    topic = session.topic()
    sent = [Record(b"%d" % index, b"k", timestamp_ms=FIRST_TIMESTAMP_MS) for index in range(500)]
    for start in range(0, 500, 250):
        session.client.produce(topic, sent[start : start + 250], idempotent=True)
    read = session.client.consume(topic, count=500)
    same_records(read, sent, timed=session.can("timestamps"))


def acknowledgements(acks: str, session: Session) -> None:
    topic = session.topic()
    sent = [Record(b"%d" % index) for index in range(50)]
    session.client.produce(topic, sent, acks=acks)
    read = session.client.consume(topic, count=50)
    same_records(read, sent, timed=False)


def large(session: Session) -> None:
    topic = session.topic(max_message_bytes="8000000")
    sent = [Record(bytes([index]) * (900_000 * index), b"%d" % index) for index in (1, 3, 8)]
    if not session.can("binary"):
        sent = [Record(b"%d" % index * (900_000 * index), b"%d" % index) for index in (1, 3, 8)]
    for record in sent:
        session.client.produce(topic, [record])
    same_records(session.client.consume(topic, count=3), sent, timed=False)


def empty_is_not_null(session: Session) -> None:
    session.needs("empty values", "tombstones")
    topic = session.topic()
    sent = [Record(None, b"k1"), Record(b"", b"k2"), Record(b"v", None), Record(b"v", b""), Record(None, None)]
    if not session.can("empty keys"):
        sent = [record for record in sent if record.key != b""]
    if not session.can("null records"):
        sent = [record for record in sent if record.key is not None or record.value is not None]
    session.client.produce(topic, sent)
    same_records(session.client.consume(topic, count=len(sent)), sent, timed=False)


def log_append_time(session: Session) -> None:
    topic = session.topic(message_timestamp_type="LogAppendTime")
    chosen = FIRST_TIMESTAMP_MS if session.can("timestamps") else None
    sent = [Record(b"a", timestamp_ms=chosen), Record(b"b", timestamp_ms=chosen)]
    session.client.produce(topic, sent, codec="gzip" if session.can("codec gzip") else "none")
    read = session.client.consume(topic, count=2)
    same_records(read, sent, timed=False)
    stamps = {record.timestamp_ms for record in read}
    expect(len(stamps) == 1, f"one batch, one append time: {stamps}")
    newest = stamps.pop()
    expect(newest is not None and newest > FIRST_TIMESTAMP_MS + 1_800_000, f"{newest} is not the broker's clock")


def auto_create(session: Session) -> None:
    topic = session.name()
    session.client.produce(topic, [Record(b"first")])
    same_records(session.client.consume(topic, count=1), [Record(b"first")], timed=False)


SCENARIOS = (
    *(
        Scenario(
            f"produce-{codec}",
            f"keys, values, headers and timestamps come back exactly; the segment holds codec {codec}",
            partial(round_trip, codec),
        )
        for codec in CODECS
    ),
    Scenario("produce-idempotent", "an idempotent producer's records are there once and in order", idempotent),
    Scenario("produce-acks-0", "records sent without acknowledgement arrive", partial(acknowledgements, "0")),
    Scenario("produce-acks-1", "records acknowledged by the leader arrive", partial(acknowledgements, "1")),
    Scenario("produce-large", "messages of 0.9, 2.7 and 7.2 MB", large),
    Scenario("produce-empty", "an empty value or key is not a null one", empty_is_not_null),
    Scenario("produce-append-time", "message.timestamp.type=LogAppendTime", log_append_time),
    Scenario("topic-auto-create", "producing to an unknown topic makes it", auto_create),
)
