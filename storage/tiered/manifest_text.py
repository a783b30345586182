"""A fast reader of manifests for the planning of reads: one regular expression takes the needed fields from the text
that `SegmentManifest.encode` writes.

A reader without a broker may list a million segments, and a JSON parser builds many objects for each that are not
needed. A manifest of any other form, with ancestors for example, is left to `decode_manifest`, which has the checks and
the messages.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.checkpoints.partition_metadata import parse_uuid, uuid_text
from moldau.storage.tiered.layout import DATA_KINDS, REQUIRED_KINDS, ObjectKind
from moldau.storage.tiered.manifest import FORMAT_VERSION
from moldau.storage.tiered.metadata.remote_segment import RemotePartition

_SUFFIX: Final = ObjectKind.MANIFEST.value
_NUMBER: Final = r"(?:0|[1-9][0-9]{0,17})"
_TEXT: Final = r'[^"\\\x00-\x1f\x7f-\xff]*'
_UUID: Final = r"[A-Za-z0-9_-]{21}[AQgw]"
"""The pattern of a UUID. Its 22 characters have four bits more than 16 bytes, so the last character has these four bits
clear."""
_EPOCH: Final = rf'\n  {{\n   "epoch": {_NUMBER},\n   "start_offset": {_NUMBER}\n  }}'
_EPOCH_FIELDS: Final = re.compile(rb'"epoch": ([0-9]+),\n   "start_offset": ([0-9]+)')
_EPOCHS_MAX: Final = 64
"""The most leader epochs of a manifest that the regular expression reads, besides the first. Others are left to the
JSON parser."""


def _object(kind: ObjectKind) -> str:
    size = rf"({_NUMBER})" if kind is ObjectKind.LOG else _NUMBER
    comma = "" if kind is ObjectKind.LOG else ","
    text = rf'{comma}\n  "{kind.value[1:]}": {{\n   "size": {size},\n   "crc32c": "[0-9a-f]{{8}}"\n  }}'
    return text if kind in REQUIRED_KINDS else f"({text})?"


_MANIFEST: Final = re.compile(
    (
        rf'{{\n "format_version": {FORMAT_VERSION},\n "cluster_id": "({_TEXT})",\n "topic": "({_TEXT})",'
        rf'\n "topic_id": "({_UUID})",\n "partition": ({_NUMBER}),\n "segment_id": "({_UUID})",'
        rf'\n "start_offset": ({_NUMBER}),\n "last_offset": ({_NUMBER}),'
        rf'\n "leader_epochs": \[({_EPOCH}(?:,{_EPOCH}){{0,{_EPOCHS_MAX}}})\n \],'
        rf'\n "max_timestamp_ms": ({_NUMBER}),\n "generation": {_NUMBER},\n "cleaned_end_offset": ({_NUMBER}),'
        r'\n "ancestors": \[\],\n "objects": {' + "".join(map(_object, DATA_KINDS)) + r"\n }\n}\n"
    ).encode()
)


class ListedManifest(NamedTuple):
    """The fields of a segment's manifest that the planning of a read needs."""

    segment_id: bytes
    start_offset: int
    last_offset: int
    epochs: tuple[EpochStart, ...]
    max_timestamp_ms: int
    cleaned_end_offset: int
    size: int
    """The size of the .log object in bytes."""
    has_transaction_index: bool


class ManifestTexts:
    """Reads the manifests of one partition of a cluster by a regular expression."""

    def __init__(self, cluster_id: str, partition: RemotePartition, prefix: str) -> None:
        """`prefix`: the prefix of the keys of the partition."""
        fields = (cluster_id, partition.topic, uuid_text(partition.topic_id), str(partition.partition))
        self._identity = tuple(each.encode() for each in fields)
        self._prefix = prefix

    def read(self, key: str, data: bytes) -> ListedManifest | None:
        """Return the fields of a manifest. Return None if its text has another form, or if it is not the manifest of
        the segment that the key names.
        """
        found = _MANIFEST.fullmatch(data)
        if found is None:
            return None
        *identity, name, start, last, epochs, timestamp, cleaned_end, size, transaction_index = found.groups()
        segment_name = name.decode()
        start_offset = int(start)
        if tuple(identity) != self._identity or key != f"{self._prefix}{start_offset:020}-{segment_name}{_SUFFIX}":
            return None
        return ListedManifest(
            parse_uuid(segment_name),
            start_offset,
            int(last),
            tuple(EpochStart(int(epoch), int(begin)) for epoch, begin in _EPOCH_FIELDS.findall(epochs)),
            int(timestamp),
            int(cleaned_end),
            int(size),
            transaction_index is not None,
        )
