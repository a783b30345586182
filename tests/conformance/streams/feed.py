"""The producer of the shop's input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Message, Producer

from tests.conformance.committed import QUIET
from tests.conformance.outcome import Failed
from tests.conformance.streams.inputs import Event

EVENTS_PER_SECOND = 60
ACKNOWLEDGED_S = 300
"""For an event, whichever broker is away; a machine may be slow."""
Deed = Callable[[int], None]
"""What happens after the event of an index is written."""


class Feed:
    """Writes events in their order at a steady rate, whichever broker is away."""

    def __init__(self, bootstrap: str) -> None:
        self._refused: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                # librdkafka may write a batch again under a new epoch if one behind it was refused out of order.
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 20,
                "message.timeout.ms": ACKNOWLEDGED_S * 1000,
                **QUIET,
            }
        )

    def write(self, events: Sequence[Event], deeds: Sequence[Deed] = ()) -> None:
        """Until each is acknowledged; the deeds are called with the index of each. Raises `Failed`."""
        for index, event in enumerate(events):
            self._producer.produce(
                event.topic,
                event.value,
                event.key,
                partition=event.partition,
                timestamp=event.timestamp_ms,
                on_delivery=self._delivered,
            )
            self._producer.poll(1 / EVENTS_PER_SECOND)
            for deed in deeds:
                deed(index)
        left = self._producer.flush(ACKNOWLEDGED_S)
        if left or self._refused:
            raise Failed(f"{left} events of the input are not acknowledged; refused: {self._refused[:3]}")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error.str())
