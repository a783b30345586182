"""The dump of record batches, as in a segment or a snapshot of the metadata log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from moldau.broker.cli.dump.json_values import Json, shown_bytes
from moldau.broker.cli.dump.record_contents import Contents, contents_of
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, BatchHeader, crc_is_valid, parse_header
from moldau.protocol.record_reader import records_of


def dump_batches(path: Path, contents: Contents, *, deep: bool) -> Iterator[dict[str, Json]]:
    """A line for each batch, and with `deep` for each record.

    One more line where the file ends in bytes that are not a whole batch.
    """
    size = path.stat().st_size
    position = 0
    with path.open("rb") as file:
        while position < size:
            start = file.read(HEADER_SIZE)
            try:
                header = parse_header(start)
            except MalformedMessage as problem:
                yield _tail(position, size, str(problem))
                return
            if header.size > size - position:
                yield _tail(position, size, f"a batch of {header.size} bytes does not fit")
                return
            batch = start + file.read(header.size - HEADER_SIZE)
            yield _shown_batch(header, position, batch)
            if deep:
                yield from _shown_records(batch, header, contents)
            position += header.size


def _shown_batch(header: BatchHeader, position: int, batch: bytes) -> dict[str, Json]:
    return {
        "type": "batch",
        "position": position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.records_count,
        "partition_leader_epoch": header.partition_leader_epoch,
        "magic": header.magic,
        "codec": _codec_name(header),
        "timestamp_type": header.timestamp_type.name,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "crc": header.crc,
        "is_valid": crc_is_valid(batch, 0, header),
    }


def _codec_name(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except MalformedMessage:
        return f"unknown ({header.attributes & 7})"


def _shown_records(batch: bytes, header: BatchHeader, contents: Contents) -> Iterator[dict[str, Json]]:
    try:
        for record in records_of(batch, 0, header):
            yield {
                "type": "record",
                "offset": record.offset,
                "timestamp": record.timestamp,
                **contents_of(record, contents, is_control=header.is_control),
                "headers": [[name, shown_bytes(value)] for name, value in record.headers],
            }
    except MalformedMessage as problem:
        yield {"type": "problem", "base_offset": header.base_offset, "problem": str(problem)}


def _tail(position: int, size: int, why: str) -> dict[str, Json]:
    return {"type": "problem", "position": position, "size": size - position, "problem": f"not a batch: {why}"}
