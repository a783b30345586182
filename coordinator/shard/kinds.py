"""The table of the kinds of groups, and lookups in it: the kind of a group, of a request and of a record.

A new kind is a package beside `coordinator/classic/` with a `GroupKind`, and one entry of `KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.kind import CLASSIC
from moldau.coordinator.consumer.kind import CONSUMER
from moldau.coordinator.group.group import Group, GroupKind, GroupStep, RequestOfGroup
from moldau.coordinator.group.records import (
    LEGACY_OFFSET_KEY,
    OFFSET_KEY,
    Change,
    OffsetChange,
    RecordChange,
    RecordType,
    TransactionEnded,
    group_record,
    offset_record,
    read_group_record,
    read_offset,
)
from moldau.coordinator.share.kind import SHARE
from moldau.coordinator.streams.kind import STREAMS
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record
from moldau.protocol.records.record_frames import read_prefix

KINDS: Final[tuple[GroupKind[Any, Any], ...]] = (CLASSIC, CONSUMER, SHARE, STREAMS)

KIND_OF_GROUP: Final[Mapping[type[Group], GroupKind[Group, RequestOfGroup]]] = {
    kind.group_class: kind for kind in KINDS
}
KIND_OF_REQUEST: Final[Mapping[type[RequestOfGroup], GroupKind[Group, RequestOfGroup]]] = {
    request: kind for kind in KINDS for request in kind.first_requests
}
KIND_AT_ONCE: Final[Mapping[type, GroupKind[Group, RequestOfGroup]]] = {
    request: kind for kind in KINDS for request in kind.requests_at_once
}
KIND_OF_KEY: Final[Mapping[type, GroupKind[Group, RequestOfGroup]]] = {
    record.key: kind for kind in KINDS for record in kind.records
}
TYPE_OF_KEY: Final[Mapping[type, RecordType]] = {record.key: record for kind in KINDS for record in kind.records}
TYPE_OF_NUMBER: Final[Mapping[int, RecordType]] = {record.number: record for record in TYPE_OF_KEY.values()}


def new_group_of_offsets(group_id: str) -> Group:
    """A new group that only has offsets. It is a classic group until a record of another kind names its id."""
    return ClassicGroup(group_id, None)


def decide(step: GroupStep, group: Group | None, event: RequestOfGroup) -> GroupKind[Group, RequestOfGroup]:
    """Decide on a request about a group (None if it does not exist). Returns the kind of the group, or the kind to
    whose protocol the request belongs if the group does not exist."""
    first = KIND_OF_REQUEST[type(event)]
    own = first if group is None else KIND_OF_GROUP[type(group)]
    if group is None or not own.decide(step, group, event):
        first.decide_first(step, group, event)
    return own


def fetch_refusal(group: Group | None, request: OffsetFetchRequestGroup) -> ErrorCode:
    """The error of an OffsetFetch by the member id and epoch in the request; NONE if the fetch is accepted. It is
    always accepted for a group that does not exist."""
    if group is None:
        return ErrorCode.NONE
    return KIND_OF_GROUP[type(group)].fetch_refusal(group, request.member_id, request.member_epoch)


def record_of(change: Change, wall_ms: int) -> Record:
    """The record that stores the change."""
    assert not isinstance(change, TransactionEnded), "a marker has no record of this kind"
    if isinstance(change, OffsetChange):
        return offset_record(change, wall_ms)
    return group_record(change, TYPE_OF_KEY[type(change.key)], wall_ms)


def change_of(record: Record) -> OffsetChange | RecordChange | None:
    """Decode the change that a record makes. Returns None if no kind of group declares this type of record, because a
    later release wrote it. Raises `MalformedMessage` for a record that no release writes, or whose version is not
    known."""
    if record.key is None:
        raise MalformedMessage("a record without a key")
    number = read_prefix(record.key)
    if number in (LEGACY_OFFSET_KEY, OFFSET_KEY):
        return read_offset(record)
    record_type = TYPE_OF_NUMBER.get(number)
    return None if record_type is None else read_group_record(record, record_type)
