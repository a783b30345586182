"""What comes out of kafka-python: messages as records, errors as refusals."""

# mypy: disable-error-code="import-untyped,misc"

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import kafka
from kafka.errors import KafkaError

from tests.conformance.drivers.kafka_python_admin import refusal
from tests.conformance.record import Record

R = TypeVar("R")


def record_of(message: kafka.consumer.fetcher.ConsumerRecord) -> Record:
    return Record(
        value=message.value,
        key=message.key,
        headers=tuple(message.headers),
        timestamp_ms=message.timestamp,
        partition=message.partition,
        offset=message.offset,
    )


def refused(attempt: Callable[[], R]) -> R:
    try:
        return attempt()
    except KafkaError as error:
        raise refusal(error) from None
