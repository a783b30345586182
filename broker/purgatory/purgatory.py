"""The purgatory: requests that wait until an offset of a partition moves, or until their timeout.

A request that cannot be answered yet becomes a `DelayedOperation`, which watches keys. A key is a partition with one of
its offsets, or the fetch session of a follower.

    key                             changed by                                      operations that watch it
    (partition, LOG_END_OFFSET)     the leader's append                             a follower's Fetch, no session
    (partition, HIGH_WATERMARK)     a commit                                        a consumer's Fetch, DeleteRecords
    (partition, LAST_STABLE_OFFSET) the commit of a marker, or of records while     a read_committed consumer's Fetch
                                    no transaction is open; DeleteRecords
    (partition, LOW_WATERMARK)      DeleteRecords, a follower's log start offset,   DeleteRecords
                                    a change of the in-sync set
    (partition, up to an offset)    a commit                                        Produce under acks=all
    (fetch session, updates)        an append to a partition of the session         a follower's Fetch

An operation that watches a partition is also notified when the replica does not lead any more, or is gone.

A wait for one offset (`CommitWait`) is settled at the commit itself. A later check could come too late, because the
replica may lose leadership soon after the commit. Any other operation costs more to check: a Fetch is planned anew over
all its partitions. Such an operation is therefore checked once for several changes. The check comes when the connection
that caused the changes has handled its received bytes and sent its replies (`hold_actions`, `try_complete_actions`), or
in the next iteration of the event loop.

An operation ends once: when it is complete, at its timeout, or when its connection is lost. Then it watches nothing.

A Produce under acks=all waits until all of its records are committed (`DelayedProduce`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Final, Generic, Protocol, TypeVar

from moldau.broker.purgatory.timer_wheel import Timeout, Timeouts
from moldau.broker.runtime.pending import OTHER, REPLICAS, Pending
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from moldau.replication.follower_fetch import UpdatedPartitions
from moldau.replication.partition import Partition

Response = TypeVar("Response")
NEW_LEADER_PERIOD_MS: Final = 1_000
"""The time (ms) that followers need to learn of a new leader from the metadata, and to add the partition to their
fetches.
"""
SHORT_WAIT_MS: Final = 10


class Watch(Enum):
    """An offset of a partition that an operation can watch."""

    LOG_END_OFFSET = auto()
    HIGH_WATERMARK = auto()
    LAST_STABLE_OFFSET = auto()
    LOW_WATERMARK = auto()


LOG_END_OFFSET: Final = Watch.LOG_END_OFFSET
HIGH_WATERMARK: Final = Watch.HIGH_WATERMARK
LAST_STABLE_OFFSET: Final = Watch.LAST_STABLE_OFFSET
LOW_WATERMARK: Final = Watch.LOW_WATERMARK
"""Module-level names for the members of `Watch`, because a lookup in the class takes as long as a call."""


class CommitWait(ABC):
    """A wait for the commit of all records before `end_offset` in one partition."""

    __slots__ = ("_queue", "end_offset")

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self._queue: deque[CommitWait] | None = None

    @abstractmethod
    def settled(self, error: ErrorCode) -> None:
        """Handle the end of the wait; called once. `error` is NONE if the records are committed, and
        NOT_ENOUGH_REPLICAS_AFTER_APPEND if they are committed with fewer in-sync replicas than min.insync.replicas.
        After any other error it is not known whether they are committed.
        """

    def enqueue(self, queue: deque[CommitWait]) -> None:
        """Insert the wait into a queue that is sorted by `end_offset`."""
        self._queue = queue
        if not queue or queue[-1].end_offset <= self.end_offset:
            queue.append(self)
            return
        # A later offset may begin to wait earlier: a request with a large batch is examined in an executor thread
        # first.
        position = len(queue) - 1
        while position and queue[position - 1].end_offset > self.end_offset:
            position -= 1
        queue.insert(position, self)

    def settle(self, error: ErrorCode) -> None:
        """End a wait that was taken out of its queue: call `settled`, unless the wait was cancelled."""
        if self._queue is not None:
            self._queue = None
            self.settled(error)

    def cancel(self) -> None:
        """Cancel the wait. No effect if it has ended.

        It stays in the queue until the records before its offset are committed. A lost connection cancels many waits,
        and a search for each in the queue would block the event loop.
        """
        self._queue = None


class CommitCallback(CommitWait):
    """A wait that calls a function with the result."""

    __slots__ = ("_committed",)

    def __init__(self, end_offset: int, committed: Callable[[ErrorCode], None]) -> None:
        super().__init__(end_offset)
        self._committed = committed

    def settled(self, error: ErrorCode) -> None:
        self._committed(error)


class WatchingOperation(ABC):
    """An operation that waits in the purgatory: the keys that it watches, and its timeout."""

    __slots__ = ("_purgatory", "_timeout", "_updates", "_watched", "is_over", "kind")

    def __init__(self, purgatory: Purgatory, kind: str, wait_ms: int | None) -> None:
        self.kind = kind
        self.is_over = False
        """Whether the operation has ended: it is complete or abandoned."""
        self._purgatory = purgatory
        self._watched: list[dict[WatchingOperation, None]] = []
        self._updates: UpdatedPartitions | None = None
        self._timeout: Timeout | None = None
        purgatory.sizes[kind] = purgatory.sizes.get(kind, 0) + 1
        if wait_ms is not None:
            self._timeout = purgatory.timeouts.call_after(max(0, wait_ms), self.expire)

    def watch(self, partitions: Iterable[Partition], what: Watch) -> None:
        """Watch the offset `what` of each of the partitions."""
        for partition in partitions:
            watchers = self._purgatory.watchers(partition)
            if what is HIGH_WATERMARK:
                watching = watchers.high_watermark
            elif what is LAST_STABLE_OFFSET:
                watching = watchers.watch_last_stable_offset()
            else:
                watching = watchers.log_end_offset if what is LOG_END_OFFSET else watchers.low_watermark
            watching[self] = None
            self._watched.append(watching)

    def watch_updates(self, updates: UpdatedPartitions) -> None:
        """Watch a follower's fetch session: check this operation when a partition has an update that should be sent at
        once, such as a new log end offset.
        """
        self._updates = updates
        updates.on_update = self._updated

    def limit_wait(self, wait_ms: int) -> None:
        """Shorten the wait, so that it ends `wait_ms` from now at the latest."""
        if self._timeout is not None:
            self._timeout.cancel()
        self._timeout = self._purgatory.timeouts.call_after(wait_ms, self.expire)

    def end(self) -> None:
        """End the wait, and watch nothing any more."""
        if self.is_over:
            return
        self.is_over = True
        self._purgatory.sizes[self.kind] -= 1
        if self._timeout is not None:
            self._timeout.cancel()
        for watching in self._watched:
            watching.pop(self, None)
        if self._updates is not None and self._updates.on_update == self._updated:
            self._updates.on_update = None

    @abstractmethod
    def try_complete(self) -> None:
        """Complete the operation if its condition is met."""

    @abstractmethod
    def expire(self) -> None:
        """End the operation, because its timeout has passed."""

    def _updated(self) -> None:
        self._purgatory.check_one_soon(self)


class DelayedOperation(WatchingOperation, Generic[Response]):
    """A request that waits in the purgatory for its response. If its connection is lost, it ends without a reply."""

    __slots__ = ("_attempt", "reply")

    def __init__(
        self,
        purgatory: Purgatory,
        kind: str,
        wait_ms: int | None,
        attempt: Callable[[bool], Response | Pending[Response] | None],
        waits_for: str = OTHER,
    ) -> None:
        """`attempt(is_last)` gives the response, or None to continue the wait; the last attempt always gives a
        response.

        `kind`: the name of the API. `wait_ms`: the timeout; None if the wait has no timeout, because another event
        is certain to end it. `waits_for` is a name of `broker/runtime/pending.py`.
        """
        super().__init__(purgatory, kind, wait_ms)
        self.reply: Pending[Response] = Pending(self.end, waits_for)
        self._attempt: Callable[[bool], Response | Pending[Response] | None] | None = attempt

    def try_complete(self) -> None:
        self._try(is_last=False)

    def expire(self) -> None:
        self._try(is_last=True)

    def complete(self, response: Response) -> None:
        """End the operation with a response. No effect if it has ended."""
        if not self.is_over:
            self.end()
            self.reply.complete(response)

    def end(self) -> None:
        super().end()
        # The callback may refer to this operation, and the cycle would be left to the garbage collector.
        self._attempt = None

    def _try(self, is_last: bool) -> None:
        response = self._attempt(is_last) if self._attempt is not None else None
        if response is None:
            return
        self.end()
        if isinstance(response, Pending):
            response.listen(self.reply.complete)
        else:
            self.reply.complete(response)


class PartitionWatchers:
    """The operations that watch one partition. It is a listener of the partition (`PartitionListener`)."""

    __slots__ = (
        "_partition",
        "_purgatory",
        "_seen_last_stable_offset",
        "commits",
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "low_watermark",
    )

    def __init__(self, purgatory: Purgatory, partition: Partition) -> None:
        self._purgatory = purgatory
        self._partition = partition
        self.log_end_offset: dict[WatchingOperation, None] = {}
        self.high_watermark: dict[WatchingOperation, None] = {}
        self.last_stable_offset: dict[WatchingOperation, None] = {}
        self._seen_last_stable_offset = -1
        """The last stable offset at the last check of the operations that watch it."""
        self.low_watermark: dict[WatchingOperation, None] = {}
        self.commits: deque[CommitWait] = deque()
        """The waits for commits, sorted by offset. Most are appended at the end, because offsets are added as records
        are appended.
        """

    def watch_last_stable_offset(self) -> dict[WatchingOperation, None]:
        """The operations that watch the last stable offset. Its current value is noted, so that only a later change
        notifies them.
        """
        self._seen_last_stable_offset = self._partition.last_stable_offset
        return self.last_stable_offset

    def on_log_end_offset_updated(self) -> None:
        if self.log_end_offset:
            self._purgatory.check_soon(self.log_end_offset)

    def on_high_watermark_updated(self) -> None:
        waits = self.commits
        if waits:
            high_watermark, error = self._partition.high_watermark, self._partition.commit_error
            while waits and waits[0].end_offset <= high_watermark:
                waits.popleft().settle(error)
        if self.high_watermark:
            self._purgatory.check_soon(self.high_watermark)
        if self.last_stable_offset:
            self._look_at_last_stable_offset()

    def on_log_start_offset_updated(self) -> None:
        if self.low_watermark:
            self._purgatory.check_soon(self.low_watermark)
        if self.last_stable_offset:
            self._look_at_last_stable_offset()

    def _look_at_last_stable_offset(self) -> None:
        """Check the operations that watch the last stable offset, if it has moved.

        While a transaction is open it does not move, even if later records are committed; then no operation is checked.
        """
        offset = self._partition.last_stable_offset
        if offset != self._seen_last_stable_offset:
            self._seen_last_stable_offset = offset
            self._purgatory.check_soon(self.last_stable_offset)

    def on_becoming_follower(self) -> None:
        self._leadership_lost(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_gone(self, error: ErrorCode) -> None:
        self._leadership_lost(error)
        self._purgatory.remove_watchers(self._partition)

    def _leadership_lost(self, error: ErrorCode) -> None:
        """End the waits for commits with an error, because this broker does not lead the partition any more: only the
        next leader knows whether the records will be committed. Check the other operations.
        """
        waits, self.commits = self.commits, deque()
        while waits:
            waits.popleft().settle(error)
        for watching in (self.log_end_offset, self.high_watermark, self.last_stable_offset, self.low_watermark):
            self._purgatory.check_soon(watching)


class Purgatory:
    """The delayed operations of one broker. It is like Apache Kafka's DelayedOperationPurgatory, with one instance for
    all kinds of operations.
    """

    __slots__ = ("_is_holding", "_is_scheduled", "_loop", "_to_check", "_watchers", "followers", "sizes", "timeouts")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeouts: Timeouts, monotonic_ms: Callable[[], int]) -> None:
        self._loop = loop
        self.timeouts = timeouts
        self.followers = FollowerWaits(monotonic_ms)
        """Limits the waits of followers' fetches."""
        self.sizes: dict[str, int] = {}
        """The number of waiting operations by kind."""
        self._watchers: dict[Partition, PartitionWatchers] = {}
        self._to_check: dict[WatchingOperation, None] = {}
        self._is_scheduled = False
        self._is_holding = False

    def watchers(self, partition: Partition) -> PartitionWatchers:
        """The watchers of a partition, which are kept as long as this broker has the replica."""
        found = self._watchers.get(partition)
        if found is None:
            found = self._watchers[partition] = PartitionWatchers(self, partition)
            partition.add_listener(found)
        return found

    def remove_watchers(self, partition: Partition) -> None:
        """Remove the watchers of a partition of which this broker has no replica any more."""
        self._watchers.pop(partition, None)

    def await_commit(self, partition: Partition, wait: CommitWait) -> None:
        """Call `wait.settled` once all records before `wait.end_offset` in the leader's log are committed, or once this
        replica no longer leads. If one of the two is so already, it is called before this returns.

        The error is NONE after a commit, or NOT_ENOUGH_REPLICAS_AFTER_APPEND if fewer replicas than min.insync.replicas
        are in sync then. Any other error means that this replica no longer leads.
        """
        if wait.end_offset <= partition.high_watermark:
            wait.settled(partition.commit_error)
        elif not partition.is_leader:
            wait.settled(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            wait.enqueue(self.watchers(partition).commits)

    def check_soon(self, operations: dict[WatchingOperation, None]) -> None:
        """Check operations soon, because a key that they watch has changed."""
        self._to_check.update(operations)
        self._schedule()

    def check_one_soon(self, operation: WatchingOperation) -> None:
        """Check an operation soon, because a key that it watches has changed."""
        self._to_check[operation] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_holding and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._check_scheduled)

    def hold_actions(self) -> None:
        """Postpone the checks of operations until `try_complete_actions`, so that several changes cause one check."""
        self._is_holding = True

    def try_complete_actions(self) -> None:
        """End the postponement of `hold_actions`, and check the operations whose keys have changed.

        If an attempt raises an exception, which is a bug, it is raised here. The remaining operations are then checked
        in the next event loop iteration.
        """
        self._is_holding = False
        if self._to_check:
            self._check()

    def _check_scheduled(self) -> None:
        self._is_scheduled = False
        self._check()

    def _check(self) -> None:
        due, self._to_check = self._to_check, {}
        try:
            while due:
                operation = next(iter(due))
                del due[operation]
                operation.try_complete()
        finally:
            if due:
                self.check_soon(due)


class FollowerFetch(Protocol):
    """A follower's fetch that waits for records."""

    @property
    def is_over(self) -> bool:
        """Whether the fetch is complete or abandoned."""

    def limit_wait(self, wait_ms: int) -> None:
        """Shorten the wait, so that it ends `wait_ms` from now at the latest."""


class FollowerWaits:
    """Limits how long the fetches of followers wait. The limit is short after this broker has become leader of
    partitions.

    A follower has one fetch in progress to each leader. While that fetch waits, for up to replica.fetch.wait.max.ms,
    the follower sends no other. So it would fetch a partition that this broker has just begun to lead only up to half a
    second later, and acks=all requests to the partition would wait as long. Therefore the waiting fetches are answered
    soon, and later fetches wait briefly until the followers had time to add the partition.

        begins to lead ──▶ waiting fetches end in `SHORT_WAIT_MS`
                       ──▶ for `NEW_LEADER_PERIOD_MS`, each fetch waits `SHORT_WAIT_MS` at most
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._waiting: list[FollowerFetch] = []
        self._turning_until_ms: int | None = None

    def wait_ms(self, wanted_ms: int) -> int:
        """The time (ms) for which a fetch that asks for `wanted_ms` may wait now."""
        if self._turning_until_ms is None:
            return wanted_ms
        if self._monotonic_ms() >= self._turning_until_ms:
            self._turning_until_ms = None
            return wanted_ms
        return min(wanted_ms, SHORT_WAIT_MS)

    def add(self, fetch: FollowerFetch) -> None:
        """Add a fetch that begins to wait. There is one for each follower, so examining all of them takes little
        time.
        """
        self._waiting = [each for each in self._waiting if not each.is_over]
        self._waiting.append(fetch)

    def on_leadership_gained(self) -> None:
        """Keep the waits of followers short for a while, because this broker has become the leader of a partition that
        other brokers follow.
        """
        self._turning_until_ms = self._monotonic_ms() + NEW_LEADER_PERIOD_MS
        waiting, self._waiting = self._waiting, []
        for fetch in waiting:
            if not fetch.is_over:
                fetch.limit_wait(SHORT_WAIT_MS)


class AppendedRecords(CommitWait):
    """The records that a Produce request appended to one partition, and the answer for that partition. The wait ends
    when the records are committed.

    It is not a NamedTuple: a compiled NamedTuple crashes at its definition if it names a compiled class of a module
    that is not imported yet.
    """

    __slots__ = ("answer", "operation", "partition")

    def __init__(self, partition: Partition, end_offset: int, answer: PartitionProduceResponse) -> None:
        super().__init__(end_offset)
        self.partition = partition
        self.answer = answer
        self.operation: DelayedProduce | None = None

    def settled(self, error: ErrorCode) -> None:
        operation, self.operation = self.operation, None
        if operation is not None:
            operation.settled(self, error)


class DelayedProduce(WatchingOperation):
    """The wait of one Produce request under acks=all. Its reply is completed when the records of every partition are
    committed or have failed, or at the timeout.

    The answer for a partition becomes an error if its records are not known to be committed, or are committed with
    fewer in-sync replicas than min.insync.replicas.
    """

    __slots__ = ("_add_leaders", "_has_failed", "_open", "_open_count", "_response", "reply")

    def __init__(
        self,
        purgatory: Purgatory,
        timeout_ms: int,
        response: ProduceResponse,
        appended: Sequence[AppendedRecords],
        add_leaders: Callable[[], None],
        *,
        has_failed: bool,
    ) -> None:
        """`response`: the response to complete. `add_leaders` adds the current leaders to it if it has errors.

        `has_failed`: whether the response has an error already.
        """
        super().__init__(purgatory, "Produce", timeout_ms)
        self.reply: Pending[ProduceResponse] = Pending(self.end, REPLICAS)
        self._response = response
        self._add_leaders = add_leaders
        self._has_failed = has_failed
        self._open = list(appended)
        """The records whose wait has not ended. A wait that has ended has no `operation` any more."""
        self._open_count = len(appended)
        for each in appended:
            each.operation = self
            purgatory.await_commit(each.partition, each)

    def settled(self, records: AppendedRecords, error: ErrorCode) -> None:
        """Handle the outcome for the records of one partition. `error` is NONE if they are committed, and
        NOT_ENOUGH_REPLICAS_AFTER_APPEND if they are committed with fewer in-sync replicas than min.insync.replicas. Any
        other error means that this broker no longer leads the partition, so the outcome is unknown.
        """
        self._open_count -= 1
        if error is not ErrorCode.NONE:
            set_produce_error(records.answer, error)
            self._has_failed = True
        if not self._open_count:
            self.try_complete()

    def try_complete(self) -> None:
        if not self._open_count and not self.is_over:
            self._complete()

    def expire(self) -> None:
        for each in self._open:
            if each.operation is not None:
                set_produce_error(each.answer, ErrorCode.REQUEST_TIMED_OUT)
        self._complete()

    def _complete(self) -> None:
        self.end()
        if self._has_failed:
            self._add_leaders()
        self.reply.complete(self._response)

    def end(self) -> None:
        super().end()
        waiting, self._open = self._open, []
        for each in waiting:
            if each.operation is not None:
                each.cancel()
                each.operation = None


def set_produce_error(answer: PartitionProduceResponse, error: ErrorCode) -> None:
    """Set the error of records that may be in the log although their request fails."""
    answer.error_code = error
    answer.base_offset = answer.log_append_time_ms = -1
