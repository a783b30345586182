"""What kcat prints for a consumed record, told apart by lengths and not by delimiters."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance.record import Record

# Partition, offset, timestamp, size of key, size of value (-1: null), headers; then the key, the value, a line's end.
FORMAT = "%p %o %T %K %S %h\n%k%s\n"


def records_in(output: bytearray) -> Iterator[Record]:
    """Takes whole records from the front of `output`, and leaves what has not come in full."""
    while (end := output.find(b"\n")) >= 0:
        partition, offset, timestamp, key_size, value_size, headers = output[:end].split(b" ", 5)
        sizes = max(int(key_size), 0), max(int(value_size), 0)
        body = end + 1
        after = body + sum(sizes) + 1
        if len(output) < after:
            return
        key = bytes(output[body : body + sizes[0]])
        value = bytes(output[body + sizes[0] : after - 1])
        del output[:after]
        yield Record(
            value=None if int(value_size) < 0 else value,
            key=None if int(key_size) <= 0 else key,
            headers=_headers(bytes(headers).decode()),
            timestamp_ms=int(timestamp),
            partition=int(partition),
            offset=int(offset),
        )


def _headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    pairs = [header.partition("=") for header in text.split(",") if header]
    return tuple((name, value.encode()) for name, _, value in pairs)
