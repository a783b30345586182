"""A record as a scenario sees it, whichever client carried it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True)
class Record:
    """What is produced, and what must come back. `offset` is unknown (-1) before the broker gave one."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0
    offset: int = -1

    def content(self) -> tuple[object, ...]:
        """All that the producer chose: what a consumer must see again, exactly."""
        return (self.partition, self.key, self.value, self.headers, self.timestamp_ms)

    def untimed(self) -> tuple[object, ...]:
        return self.content()[:-1]


def text_of(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(bytes(data)).decode()


def bytes_of(text: object) -> bytes | None:
    return None if text is None else base64.b64decode(str(text))


def to_wire(record: Record) -> dict[str, Json]:
    return {
        "k": text_of(record.key),
        "v": text_of(record.value),
        "h": [[name, text_of(value)] for name, value in record.headers],
        "t": record.timestamp_ms,
        "p": record.partition,
        "o": record.offset,
    }


def from_wire(wire: Json) -> Record:
    assert isinstance(wire, dict)
    headers, partition, offset, timestamp = wire["h"], wire["p"], wire["o"], wire["t"]
    assert isinstance(headers, list) and isinstance(partition, int) and isinstance(offset, int)
    return Record(
        value=bytes_of(wire["v"]),
        key=bytes_of(wire["k"]),
        headers=tuple((str(header[0]), bytes_of(header[1])) for header in headers if isinstance(header, list)),
        timestamp_ms=timestamp if isinstance(timestamp, int) else None,
        partition=partition,
        offset=offset,
    )
