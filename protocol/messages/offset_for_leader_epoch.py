"""OffsetForLeaderEpoch (API 23): the end offset of a leader epoch, by which a client or follower finds out whether its
log diverges."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, empty, message, since, struct


@struct
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic:
    topic: str
    partitions: list[OffsetForLeaderPartition] = empty()


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: Annotated[Int32, since(3)] = -2
    topics: list[OffsetForLeaderTopic] = empty()


@struct
class EpochEndOffset:
    error_code: Int16 = 0
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class OffsetForLeaderTopicResult:
    topic: str
    partitions: list[EpochEndOffset] = empty()


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = empty()
