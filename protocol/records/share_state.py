"""The records of `__share_group_state` (KIP-932). The `key` of each declaration is the record type."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, Int64, Uuid, empty, message, struct, tag


@message(key=0, versions="0", flexible="none")
class ShareSnapshotKey:
    group_id: str
    topic_id: Uuid
    partition: Int32


@struct
class StateBatch:
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message(key=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, tag(0)] = -1
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch] = empty()


@message(key=1, versions="0", flexible="none")
class ShareUpdateKey:
    group_id: str
    topic_id: Uuid
    partition: Int32


@message(key=1, versions="0", flexible="0+")
class ShareUpdateValue:
    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, tag(0)] = -1
    state_batches: list[StateBatch] = empty()
