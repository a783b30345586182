"""The contents of files as `moldau dump-log` shows them: batches, records, indexes, checkpoints."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from moldau.broker.config.setting import HIDDEN
from moldau.protocol.compiler import decode
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.primitives import MalformedMessage, read_uvarint
from moldau.protocol.record_batch import HEADER_SIZE, BatchHeader, crc_is_valid, parse_header
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of
from moldau.protocol.records import (
    consumer_groups,
    control,
    metadata,
    offsets,
    share_groups,
    share_state,
    streams_groups,
    transactions,
)
from moldau.protocol.records.record_frames import DeclaredRecord, declared_records, value_version
from moldau.protocol.schema import Field, Wire, fields_of
from moldau.storage.checkpoints.partition_metadata import parse_uuid
from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint, parse_checkpoint
from moldau.storage.producers import producer_snapshot
from moldau.storage.segment import sparse_index, transaction_index

METADATA_TOPIC: Final = "__cluster_metadata"
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
_LEGACY_OFFSET: Final = DeclaredRecord(offsets.OffsetCommitKey, offsets.OffsetCommitValue)
"""The type of offsets in the first releases of Apache Kafka; the number is 0."""
_CONTROL_VALUES: Final = {
    ControlRecordType.ABORT: control.EndTxnMarker,
    ControlRecordType.COMMIT: control.EndTxnMarker,
    ControlRecordType.LEADER_CHANGE: control.LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: control.SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: control.SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: control.KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: control.VotersRecord,
}

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class Contents(Enum):
    """The kind of records in a log, which decides how they are decoded."""

    PLAIN = "plain"
    METADATA = "metadata"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"
    SHARE_STATE = "share-state"


def shown_bytes(data: bytes | None) -> Json:
    """The bytes as text where they are printable text, else as {"base64": …}."""
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if all(character.isprintable() or character in "\t\n\r" for character in text):
        return text
    return {"base64": base64.b64encode(data).decode("ascii")}


def shown_id(data: bytes) -> str:
    """Apache Kafka's text of a 16-byte id."""
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def shown_message(message: object, version: int) -> dict[str, Json]:
    """The fields of a declared message that a version has."""
    return {
        field.name: _shown_field(field, getattr(message, field.name), version)
        for field in fields_of(type(message))
        if version in field.versions
    }


def _shown_field(field: Field, value: object, version: int) -> Json:
    if value is None:
        return None
    if field.is_array:
        assert isinstance(value, list)
        return [_shown_one(field, each, version) for each in value]
    return _shown_one(field, value, version)


def _shown_one(field: Field, value: object, version: int) -> Json:
    if field.struct is not None:
        return shown_message(value, version)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return shown_id(bytes(value)) if field.kind is Wire.UUID else shown_bytes(bytes(value))
    assert isinstance(value, (bool, int, float, str)), f"{field.name} holds a {type(value).__name__}"
    return value


# Batches and their records


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


def contents_of(record: Record, contents: Contents, *, is_control: bool) -> dict[str, Json]:
    """Key and value of a record: decoded by name for a known kind, else as text or base64."""
    decoder = _control_contents if is_control else _DECODERS[contents]
    try:
        return decoder(record)
    except (MalformedMessage, IndexError) as problem:
        return {**_plain_contents(record), "problem": str(problem)}


def _plain_contents(record: Record) -> dict[str, Json]:
    return {"key": shown_bytes(record.key), "value": shown_bytes(record.value)}


def _control_contents(record: Record) -> dict[str, Json]:
    kind = control_record_type(record.key)
    if kind is None or record.value is None:
        return _plain_contents(record)
    # The first field of every value is its version.
    version = _int16(record.value)
    if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        marker = decode(control.EndTxnMarker, record.value[2:], 0)
        return {"control": kind.name, "value": shown_message(marker, 0)}
    return {"control": kind.name, "value": shown_message(decode(_CONTROL_VALUES[kind], record.value, version), version)}


def _metadata_contents(record: Record) -> dict[str, Json]:
    from moldau.kraft.record_frame import decode_record

    value = record.value or b""
    decoded = decode_record(value)
    _, position = read_uvarint(value, 0)
    _, position = read_uvarint(value, position)
    version, _ = read_uvarint(value, position)
    shown = shown_message(decoded, version)
    for name in _secrets_of(decoded):
        shown[name] = HIDDEN
    return {"metadata": type(decoded).__name__, "version": version, "value": shown}


def _secrets_of(record: object) -> tuple[str, ...]:
    """The fields of a metadata record that are not shown: keys of credentials, and values of settings that are
    passwords or unknown.
    """
    from moldau.broker.config.layers import known_setting
    from moldau.kraft.image.configs import ResourceType

    if isinstance(record, metadata.UserScramCredentialRecord):
        return ("salt", "stored_key", "server_key")
    if isinstance(record, metadata.ConfigRecord) and record.resource_type == ResourceType.BROKER and record.value:
        setting = known_setting(record.name)
        return ("value",) if setting is None or setting.is_sensitive else ()
    return ()


def _coordinator_contents(types: Mapping[int, DeclaredRecord], label: str) -> Callable[[Record], dict[str, Json]]:
    """Shows records of a coordinator's topic; `label` is the name of the field with the type of the record."""

    def contents(record: Record) -> dict[str, Json]:
        key = record.key or b""
        declared = types.get(_int16(key))
        if declared is None:
            return _plain_contents(record)
        shown: dict[str, Json] = {"key": shown_message(decode(declared.key, key[2:], 0), 0), label: declared.name}
        if record.value is None:
            return {**shown, "value": None}
        version = value_version(record.value, declared.value)
        return {
            **shown,
            "version": version,
            "value": shown_message(decode(declared.value, record.value[2:], version), version),
        }

    return contents


_DECODERS: Final[dict[Contents, Callable[[Record], dict[str, Json]]]] = {
    Contents.METADATA: _metadata_contents,
    Contents.OFFSETS: _coordinator_contents(
        {0: _LEGACY_OFFSET} | declared_records(offsets, consumer_groups, share_groups, streams_groups), "offsets"
    ),
    Contents.TRANSACTIONS: _coordinator_contents(declared_records(transactions), "transactions"),
    Contents.SHARE_STATE: _coordinator_contents(declared_records(share_state), "share_state"),
    Contents.PLAIN: _plain_contents,
}


def _int16(data: bytes) -> int:
    if len(data) < 2:
        raise MalformedMessage(f"{len(data)} bytes cannot begin with a version")
    return int.from_bytes(data[:2], "big", signed=True)


# Indexes, snapshots and checkpoints


def dump_offset_index(path: Path) -> Iterator[dict[str, Json]]:
    """A line for each entry, without the preallocated zeros at the end of an active segment's index."""
    base_offset = int(path.name.partition(".")[0])
    for slot, (delta, position) in enumerate(
        sparse_index.OFFSET_ENTRY.iter_unpack(_whole_entries(path, sparse_index.OFFSET_ENTRY.size))
    ):
        if delta == 0 and slot > 0:
            return
        if (delta, position) != (0, 0):
            yield {"type": "offset_index_entry", "offset": base_offset + delta, "position": position}


def dump_time_index(path: Path) -> Iterator[dict[str, Json]]:
    """A line for each entry, without the preallocated zeros at the end of an active segment's index."""
    base_offset = int(path.name.partition(".")[0])
    for timestamp, delta in sparse_index.TIME_ENTRY.iter_unpack(_whole_entries(path, sparse_index.TIME_ENTRY.size)):
        if (timestamp, delta) == (0, 0):
            return
        yield {"type": "time_index_entry", "timestamp": timestamp, "offset": base_offset + delta}


def dump_transaction_index(path: Path) -> Iterator[dict[str, Json]]:
    """A line for each aborted transaction."""
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


def dump_producer_snapshot(path: Path) -> Iterator[dict[str, Json]]:
    """A line for each producer."""
    data = path.read_bytes()
    try:
        producer_snapshot.decode_snapshot(data)
    except producer_snapshot.CorruptSnapshot as problem:
        yield {"type": "problem", "problem": str(problem)}
        return
    for fields in producer_snapshot.ENTRY.iter_unpack(data[producer_snapshot.HEADER.size :]):
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


def dump_offset_checkpoint(path: Path) -> Iterator[dict[str, Json]]:
    """A line for each partition of a directory's checkpoint."""
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


def dump_leader_epochs(path: Path) -> Iterator[dict[str, Json]]:
    """A line for each leader epoch of a partition."""
    for line in _checkpoint_lines(path):
        if isinstance(line, dict):
            yield line
            continue
        epoch, start_offset = line.split()
        yield {"type": "leader_epoch", "epoch": int(epoch), "start_offset": int(start_offset)}


def dump_properties(path: Path) -> Iterator[dict[str, Json]]:
    """One line with the settings of partition.metadata or meta.properties."""
    from moldau.storage.checkpoints.java_properties import read_properties

    settings: dict[str, Json] = {**read_properties(path.read_text("utf-8"))}
    topic_id = settings.get("topic_id")
    if isinstance(topic_id, str):
        settings["topic_id"] = shown_id(parse_uuid(topic_id))
    yield {"type": path.name, **settings}


def dump_json(path: Path) -> Iterator[dict[str, Json]]:
    """One line with the content of a JSON file: quorum-state, .kafka_cleanshutdown."""
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
