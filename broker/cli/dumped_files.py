"""Reads the files that `moldau dump-log` prints, each as JSON objects: batches, records, indexes, checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from moldau.broker.config.internal_topics import RecordKind
from moldau.broker.console.decoding.record_contents import Json, contents_of, shown_bytes
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, MAGIC, BatchHeader, crc_is_valid, parse_header
from moldau.protocol.record_reader import records_of
from moldau.storage.checkpoints.partition_metadata import parse_uuid, uuid_text
from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint, parse_checkpoint
from moldau.storage.producers import producer_snapshot
from moldau.storage.segment import sparse_index, transaction_index

# Batches and their records


def dumped_batches(path: Path, contents: RecordKind, *, deep: bool) -> Iterator[dict[str, Json]]:
    """Dump a log file: one object for each batch, and with `deep` one for each record.

    If the file ends in bytes that are not a whole batch, one more object describes them.
    """
    size = path.stat().st_size
    position = 0
    with path.open("rb") as file:
        while position < size:
            start = file.read(HEADER_SIZE)
            try:
                header = parse_header(start, 0, True)
            except MalformedMessage as problem:
                yield _tail(position, size, str(problem))
                return
            if header.size > size - position:
                yield _tail(position, size, f"a batch of {header.size} bytes does not fit")
                return
            batch = (start + file.read(max(0, header.size - HEADER_SIZE)))[: header.size]
            yield _shown_batch(header, position, batch)
            if deep:
                yield from _shown_records(batch, header, contents)
            position += header.size
            file.seek(position)


def _shown_batch(header: BatchHeader, position: int, batch: bytes) -> dict[str, Json]:
    if header.magic != MAGIC:
        return {
            "type": "message",
            "position": position,
            "size": header.size,
            "offset": header.base_offset,
            "magic": header.magic,
            "codec": _codec_name(header),
            "timestamp_type": header.timestamp_type.name if header.magic else None,
            "timestamp": header.max_timestamp,
            "crc": header.crc,
            "is_valid": crc_is_valid(batch, 0, header),
        }
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


def _shown_records(batch: bytes, header: BatchHeader, contents: RecordKind) -> Iterator[dict[str, Json]]:
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


# Indexes, snapshots and checkpoints


def dumped_offset_index(path: Path) -> Iterator[dict[str, Json]]:
    """Dump an offset index: one object for each entry. The preallocated zeros at the end of an active segment's index
    are left out.
    """
    base_offset = int(path.name.partition(".")[0])
    for slot, (delta, position) in enumerate(
        sparse_index.OFFSET_ENTRY.iter_unpack(_whole_entries(path, sparse_index.OFFSET_ENTRY.size))
    ):
        if delta == 0 and slot > 0:
            return
        if (delta, position) != (0, 0):
            yield {"type": "offset_index_entry", "offset": base_offset + delta, "position": position}


def dumped_time_index(path: Path) -> Iterator[dict[str, Json]]:
    """Dump a time index: one object for each entry. The preallocated zeros at the end of an active segment's index are
    left out.
    """
    base_offset = int(path.name.partition(".")[0])
    for timestamp, delta in sparse_index.TIME_ENTRY.iter_unpack(_whole_entries(path, sparse_index.TIME_ENTRY.size)):
        if (timestamp, delta) == (0, 0):
            return
        yield {"type": "time_index_entry", "timestamp": timestamp, "offset": base_offset + delta}


def dumped_transaction_index(path: Path) -> Iterator[dict[str, Json]]:
    """Dump a transaction index: one object for each aborted transaction."""
    entry = transaction_index.ENTRY
    for version, producer_id, first, last, stable in entry.iter_unpack(_whole_entries(path, entry.size)):
        yield {
            "type": "aborted_transaction",
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }


def dumped_producer_snapshot(path: Path) -> Iterator[dict[str, Json]]:
    """Dump a producer snapshot: one object for each producer."""
    data = path.read_bytes()
    try:
        producer_snapshot.decode_snapshot(data)
    except producer_snapshot.CorruptSnapshot as problem:
        yield {"type": "problem", "problem": str(problem)}
        return
    for fields in producer_snapshot.SNAPSHOT_ENTRY.iter_unpack(data[producer_snapshot.SNAPSHOT_HEADER.size :]):
        producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, open_offset = fields
        yield {
            "type": "producer",
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "last_sequence": last_sequence,
            "last_offset": last_offset,
            "offset_delta": offset_delta,
            "last_timestamp": timestamp,
            "coordinator_epoch": coordinator_epoch,
            "open_transaction_offset": open_offset,
        }


def dumped_offset_checkpoint(path: Path) -> Iterator[dict[str, Json]]:
    """Dump a checkpoint of offsets of a log directory: one object for each partition."""
    for line in _checkpoint_lines(path):
        if isinstance(line, dict):
            yield line
            continue
        topic, partition, offset = line.rsplit(" ", 2)
        yield {
            "type": "offset_checkpoint_entry",
            "topic": topic,
            "partition": int(partition),
            "offset": int(offset),
        }


def dumped_leader_epochs(path: Path) -> Iterator[dict[str, Json]]:
    """Dump a leader-epoch-checkpoint: one object for each leader epoch."""
    for line in _checkpoint_lines(path):
        if isinstance(line, dict):
            yield line
            continue
        epoch, start_offset = line.split()
        yield {"type": "leader_epoch", "epoch": int(epoch), "start_offset": int(start_offset)}


def dumped_properties(path: Path) -> Iterator[dict[str, Json]]:
    """Dump partition.metadata or meta.properties: one object with the properties."""
    from moldau.storage.checkpoints.java_properties import read_properties

    settings: dict[str, Json] = {**read_properties(path.read_text("utf-8"))}
    topic_id = settings.get("topic_id")
    if isinstance(topic_id, str):
        settings["topic_id"] = uuid_text(parse_uuid(topic_id))
    yield {"type": path.name, **settings}


def dumped_json(path: Path) -> Iterator[dict[str, Json]]:
    """Dump a JSON file (quorum-state, .kafka_cleanshutdown): one object with its content."""
    content: Json = json.loads(path.read_text("utf-8"))
    yield {"type": path.name, "content": content}


def _checkpoint_lines(path: Path) -> Iterator[str | dict[str, Json]]:
    try:
        yield from parse_checkpoint(path.read_bytes(), str(path))
    except CorruptCheckpoint as problem:
        yield {"type": "problem", "problem": str(problem)}


def _whole_entries(path: Path, entry_size: int) -> bytes:
    data = path.read_bytes()
    return data[: len(data) - len(data) % entry_size]
