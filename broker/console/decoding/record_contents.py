"""Formats the contents of a record as JSON. Records of internal topics, metadata records and markers have their fields
by name.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final

from moldau.broker.config.internal_topics import RecordKind
from moldau.broker.config.setting import HIDDEN
from moldau.protocol.compiler import decode
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.primitives import MalformedMessage, read_uvarint
from moldau.protocol.record_builder import Record
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
from moldau.protocol.schema import Field, WireType, fields_of
from moldau.storage.checkpoints.partition_metadata import uuid_text

_LEGACY_OFFSET: Final = DeclaredRecord(offsets.OffsetCommitKey, offsets.OffsetCommitValue)
"""The record type 0 of `__consumer_offsets`: committed offsets as the first releases of Apache Kafka wrote them."""
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


def shown_bytes(data: bytes | None) -> Json:
    """Format bytes for JSON: as text if they are printable UTF-8, otherwise as {"base64": …}."""
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if all(character.isprintable() or character in "\t\n\r" for character in text):
        return text
    return {"base64": base64.b64encode(data).decode("ascii")}


def shown_message(message: object, version: int) -> dict[str, Json]:
    """The fields of a protocol message that exist in a version, by name."""
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
        return uuid_text(bytes(value)) if field.kind is WireType.UUID else shown_bytes(bytes(value))
    assert isinstance(value, (bool, int, float, str)), f"{field.name} holds a {type(value).__name__}"
    return value


# Records


def contents_of(record: Record, contents: RecordKind, *, is_control: bool) -> dict[str, Json]:
    """The key and the value of a record for JSON. If the type of the record is known, they have its fields by name;
    otherwise they are text or base64.
    """
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
    """The fields of a metadata record that are hidden: the secrets of SCRAM credentials, and values of settings that
    are passwords or unknown.
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
    """Make a function that formats the records of a coordinator's topic. `types` has the record types by number.
    `label` is the name of the JSON field with the record type.
    """

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


_DECODERS: Final[dict[RecordKind, Callable[[Record], dict[str, Json]]]] = {
    RecordKind.METADATA: _metadata_contents,
    RecordKind.OFFSETS: _coordinator_contents(
        {0: _LEGACY_OFFSET} | declared_records(offsets, consumer_groups, share_groups, streams_groups), "offsets"
    ),
    RecordKind.TRANSACTIONS: _coordinator_contents(declared_records(transactions), "transactions"),
    RecordKind.SHARE_STATE: _coordinator_contents(declared_records(share_state), "share_state"),
    RecordKind.PLAIN: _plain_contents,
}


def _int16(data: bytes) -> int:
    if len(data) < 2:
        raise MalformedMessage(f"{len(data)} bytes cannot begin with a version")
    return int.from_bytes(data[:2], "big", signed=True)
