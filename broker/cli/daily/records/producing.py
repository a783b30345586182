"""The action `moldau produce`: writes records to the topic, in the order of the lines."""

from __future__ import annotations

import sys
from typing import Final

from moldau.broker.cli.daily.failures import EXIT_UNKNOWN, EXIT_UNREACHABLE, Failure, raise_wrong_arguments, refused
from moldau.broker.cli.daily.records.sources import STANDARD_INPUT, RecordShape, kind_of, records_of
from moldau.broker.cli.daily.session import Session
from moldau.broker.cli.daily.times import time_ms
from moldau.broker.cli.invocation import CommandError
from moldau.broker.reasons.words import count_with_noun
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import RecordHeader
from moldau.tables.client.cluster import Cluster, RefusedByBroker
from moldau.tables.client.producer import TopicProducer
from moldau.tables.client.transaction import new_producer
from moldau.tables.refusals import Refused

BATCH_SIZE: Final = 1 << 19
"""The bytes of a batch at which it is sent. The default of max.message.bytes is twice as much."""
TRANSACTION_TIMEOUT_MS: Final = 60_000
"""The transaction timeout in InitProducerId. It has no effect, because the producer has no transactions."""


def produce(session: Session) -> int:
    """Write the records of all files, one file after the other (`produce`)."""
    given, client = session.arguments, session.client
    shape = _shape(session)
    made_by = f"'moldau topic create {given.topic}' makes it"
    partitions = client.known_topics([given.topic], made_by)[given.topic].partitions
    if shape.partition is not None and not 0 <= shape.partition < len(partitions):
        raise Failure(
            f"topic {given.topic} has no partition {shape.partition}: it has {len(partitions)}", status=EXIT_UNKNOWN
        )
    cluster = Cluster(client.settings)
    count = 0
    try:
        producer = TopicProducer(
            cluster,
            new_producer(cluster, None, TRANSACTION_TIMEOUT_MS),
            codec=Codec[given.compression.upper()],
            batch_size=BATCH_SIZE,
            delivery_s=client.settings.timeout_s,
        )
        try:
            for file in given.files or [STANDARD_INPUT]:
                kind = kind_of(file, given.format)
                _check_kind(session, kind)
                if file == STANDARD_INPUT and sys.stdin.isatty():
                    session.note(f"reading {kind} from the terminal (Ctrl-D ends it)")
                for record in records_of(file, kind, shape, session.invocation, producer.flush):
                    producer.send(record)
            producer.flush()
        finally:
            count = producer.count
    except CommandError as failed:
        raise _with_count(failed, count) from None
    except RefusedByBroker as problem:
        # A producer without a right to any topic gets no id.
        is_denied = problem.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else problem.code
        what = f"topic {given.topic}" if is_denied else problem.what
        raise _with_count(refused(code, None, what), count) from None
    except Refused as problem:
        raise _with_count(Failure(str(problem), status=EXIT_UNREACHABLE), count) from None
    finally:
        cluster.close()
    session.output.say(f"{count_with_noun(count, 'record')} to {given.topic}")
    session.output.object({"topic": given.topic, "records": count})
    return 0


def _with_count(failed: CommandError, count: int) -> Failure:
    written = (
        f"; {count_with_noun(count, 'record')} before that {'is' if count == 1 else 'are'} written" if count else ""
    )
    return Failure(f"{failed}{written}", *failed.details, status=failed.status)


def _shape(session: Session) -> RecordShape:
    given = session.arguments
    if given.key is not None and (given.key_separator is not None or given.key_field is not None):
        raise_wrong_arguments("--key is the key of every record: leave out --key-separator and --key-field")
    return RecordShape(
        given.topic,
        None if given.key is None else given.key.encode(),
        None if given.key_separator is None else given.key_separator.encode(),
        given.key_field,
        given.value_field,
        given.partition,
        tuple(_header(each) for each in given.header),
        None if given.timestamp is None else time_ms(given.timestamp, "--timestamp", session.now_ms()),
        given.tombstones,
        None if given.delimiter is None else _delimiter(given.delimiter),
    )


def _header(given: str) -> RecordHeader:
    """A header of the form NAME=VALUE, or NAME, which has no value."""
    name, is_pair, value = given.partition("=")
    if not name.strip():
        raise_wrong_arguments(f"--header {given} is not NAME=VALUE")
    return name.strip(), value.strip().encode() if is_pair else None


def _delimiter(given: str) -> bytes:
    """The bytes of a delimiter, in which \\0, \\n, \\t and \\r stand for the characters that they name in C."""
    text = given
    for escape, character in (("\\0", "\0"), ("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r")):
        text = text.replace(escape, character)
    if not text:
        raise_wrong_arguments("--delimiter is empty")
    return text.encode()


def _check_kind(session: Session, kind: str) -> None:
    given = session.arguments
    if kind in ("lines", "file", "records") and (given.key_field is not None or given.value_field is not None):
        raise_wrong_arguments(f"--key-field and --value-field are for jsonl, csv and parquet, and this is {kind}")
    if kind != "lines" and given.delimiter is not None:
        raise_wrong_arguments(f"--delimiter is for lines, and this is {kind}")
    if kind != "lines" and given.key_separator is not None:
        raise_wrong_arguments(f"--key-separator is for lines, and this is {kind}: --key-field names the key")
