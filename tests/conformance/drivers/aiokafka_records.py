"""What comes out of aiokafka: messages as records."""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import aiokafka

from tests.conformance.record import Record


def record_of(message: aiokafka.ConsumerRecord) -> Record:
    return Record(
        value=message.value,
        key=message.key,
        headers=tuple(message.headers),
        timestamp_ms=message.timestamp,
        partition=message.partition,
        offset=message.offset,
    )
