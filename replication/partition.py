"""A partition as its leader serves it: append, the in-sync set, the high watermark, and who waits for either.

    end offset ──────── where the leader's log ends
    high watermark ──── what every in-sync replica has: consumers read up to here
    log start offset ── retention and DeleteRecords move it forward

With the leader alone in sync, the high watermark follows the end offset at once; where flush.messages asks for a sync,
only after that: what a consumer has read, no loss of power takes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.errors import ErrorCode
from protocol.primitives import BytesLike
from protocol.record_validation import Refusal, ValidBatch
from storage.append_result import AppendOrigin, AppendResult
from storage.log import Log

ACKS_ALL: Final = -1
NONE: Final = ErrorCode.NONE
"""Looked up once: an enum's member costs as much as a call."""


class Partition:
    """One partition that this broker leads."""

    __slots__ = (
        "_first_end_offset",
        "_waiters",
        "bytes_in",
        "bytes_out",
        "high_watermark",
        "index",
        "is_internal",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "min_insync_replicas",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log, high_watermark: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_id = -1
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.min_insync_replicas = 1
        """How many must be in sync for an append under acks=all; never more than there are replicas."""
        self.is_internal = False
        """Whether only coordinators write it: a client's batch is refused."""
        self.high_watermark = high_watermark
        self.bytes_in = 0
        """Appended for clients since this object was made."""
        self.bytes_out = 0
        """Given to consumers, counted by whoever does it."""
        self._first_end_offset = log.end_offset
        self._waiters: dict[Callable[[], None], None] = {}

    @property
    def messages_in(self) -> int:
        """Records appended since this object was made."""
        return self.log.end_offset - self._first_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to where no transaction is open, never past the high watermark."""
        return self.log.last_stable_offset(self.high_watermark)

    def become_leader(self, leader_id: int, leader_epoch: int, isr: tuple[int, ...]) -> None:
        """Lead from this epoch on. Everything in the log is committed when the leader is alone in sync."""
        if leader_epoch > self.leader_epoch:
            self.log.epochs.assign(leader_epoch, self.log.end_offset)
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.advance()

    def check_leader_epoch(self, epoch: int) -> ErrorCode:
        """Whether a client that knows this leader epoch (-1: none) talks to the leader it means."""
        if epoch in (-1, self.leader_epoch):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def append(self, records: BytesLike, required_acks: int, now_ms: int, produce_version: int) -> AppendResult:
        """Append a client's batch. A refusal is in the result's error; nothing is then written."""
        if required_acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas:
            return AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1, -1, self.log.log_start_offset)
        result = self.log.append_as_leader(records, self.leader_epoch, now_ms, produce_version=produce_version)
        if result.error is NONE:
            self.bytes_in += len(records)
            self.advance()
        return result

    def append_examined(
        self, examined: ValidBatch | Refusal, size: int, required_acks: int, now_ms: int
    ) -> AppendResult:
        """The same for a batch of so many bytes that was examined beside the loop."""
        if required_acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas:
            return AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1, -1, self.log.log_start_offset)
        result = self.log.append_examined(examined, self.leader_epoch, now_ms)
        if result.error is NONE:
            self.bytes_in += size
            self.advance()
        return result

    def append_internal(self, batch: BytesLike, now_ms: int) -> AppendResult:
        """Append a batch that a coordinator of this process made, under acks=all."""
        if len(self.isr) < self.min_insync_replicas:
            return AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1, -1, self.log.log_start_offset)
        result = self.log.append_as_leader(batch, self.leader_epoch, now_ms, origin=AppendOrigin.COORDINATOR)
        if result.error is ErrorCode.NONE:
            self.advance()
        return result

    @property
    def awaits_flush(self) -> bool:
        """Whether records are not committed yet because flush.messages asks for a sync first."""
        return self.log.unflushed_count >= self.log.config.flush_messages

    def wait(self, waiter: Callable[[], None]) -> None:
        """Call the waiter at every move of the high watermark, until `forget`."""
        self._waiters[waiter] = None

    def forget(self, waiter: Callable[[], None]) -> None:
        self._waiters.pop(waiter, None)

    def wake(self) -> None:
        """Let all waiters look again: the partition is gone, or its leadership is."""
        for waiter in tuple(self._waiters):
            waiter()

    def advance(self) -> None:
        """Move the high watermark to where it may be: after an append, and when a sync is done."""
        log = self.log
        end_offset = log.end_offset
        if end_offset - log.synced_end_offset >= log.config.flush_messages:
            end_offset = log.synced_end_offset
        if end_offset > self.high_watermark:
            self.high_watermark = end_offset
            if self._waiters:
                self.wake()
