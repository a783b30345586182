"""What comes out of confluent-kafka: messages as records, errors as refusals."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

from tests.conformance.drivers.librdkafka import error_name
from tests.conformance.outcome import Refused
from tests.conformance.record import Record


def refusal(error: KafkaError) -> Refused:
    return Refused(error_name(error.name()), error.str())


def record_of(message: Message) -> Record:
    value, key = message.value(), message.key()
    assert not isinstance(value, str) and not isinstance(key, str)
    return Record(
        value=value,
        key=key,
        headers=tuple(message.headers() or []),  # type: ignore[arg-type]
        timestamp_ms=message.timestamp()[1],
        partition=message.partition() or 0,
        offset=message.offset() or 0,
    )
