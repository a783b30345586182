"""The contents of records that brokers write: metadata, offsets, control records."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from moldau.broker.cli.dump.json_values import Json, shown_bytes, shown_message
from moldau.broker.config.setting import HIDDEN
from moldau.protocol.compiler import decode
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.primitives import MalformedMessage, read_uvarint
from moldau.protocol.record_builder import Record
from moldau.protocol.records import control, metadata, offsets

METADATA_TOPIC: Final = "__cluster_metadata"
OFFSETS_TOPIC: Final = "__consumer_offsets"
_CONTROL_VALUES: Final = {
    ControlRecordType.ABORT: control.EndTxnMarker,
    ControlRecordType.COMMIT: control.EndTxnMarker,
    ControlRecordType.LEADER_CHANGE: control.LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: control.SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: control.SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: control.KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: control.VotersRecord,
}


class Contents(Enum):
    """The kind of records in a log, which decides how they are decoded."""

    PLAIN = "plain"
    METADATA = "metadata"
    OFFSETS = "offsets"


def contents_of(record: Record, contents: Contents, *, is_control: bool) -> dict[str, Json]:
    """Key and value of a record: decoded by name for a known kind, else as text or base64."""
    decoders: dict[Contents, Callable[[Record], dict[str, Json]]] = {
        Contents.METADATA: _metadata_contents,
        Contents.OFFSETS: _offsets_contents,
        Contents.PLAIN: _plain_contents,
    }
    decoder = _control_contents if is_control else decoders[contents]
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


def _offsets_contents(record: Record) -> dict[str, Json]:
    key = record.key or b""
    kind = _int16(key)
    if kind in (0, 1):
        key_class: type[object] = offsets.OffsetCommitKey
        value_class: type[object] = offsets.OffsetCommitValue
    elif kind == 2:
        key_class, value_class = offsets.GroupMetadataKey, offsets.GroupMetadataValue
    else:
        return _plain_contents(record)
    shown: dict[str, Json] = {"key": shown_message(decode(key_class, key[2:], 0), 0)}
    shown["offsets"] = key_class.__name__.removesuffix("Key")
    if record.value is None:
        return {**shown, "value": None}
    version = _int16(record.value)
    value = decode(value_class, record.value[2:], version)
    return {**shown, "version": version, "value": shown_message(value, version)}


def _int16(data: bytes) -> int:
    if len(data) < 2:
        raise MalformedMessage(f"{len(data)} bytes cannot begin with a version")
    return int.from_bytes(data[:2], "big", signed=True)
