"""A broker's follower side towards one leader: what to fetch next, and what to do with what comes.

Each partition is in one state; every state but FETCHING leaves it out of the requests.

    FETCHING   ──diverging epoch, or the leader's log ends before ours──▶ TRUNCATING ──truncated──▶ FETCHING
    FETCHING   ──offset out of the leader's range──▶ LOOKING_UP ──▶ TRUNCATING, or starts anew at the leader's start
    FETCHING   ──appended more than flush.messages──▶ FLUSHING ──flushed──▶ FETCHING
    FETCHING   ──an error──▶ DELAYED ──after replica.fetch.backoff.ms──▶ FETCHING

A fetch tells the leader how far this replica has come, so the order is binding: truncate, then fetch; flush where the
topic asks for it, then fetch. The leader's high watermark is taken only from an answer that did not diverge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData, ReplicaState
from replication.partition import Partition
from replication.replica_session import Key, ReplicaSession

SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
UNDEFINED: Final = -1


class State(Enum):
    """What a followed partition waits for."""

    FETCHING = auto()
    TRUNCATING = auto()
    LOOKING_UP = auto()
    FLUSHING = auto()
    DELAYED = auto()


class Truncate(NamedTuple):
    """Cut the log to this offset, its recovery point lowered durably before; answer with `truncated`."""

    partition: Partition
    leader_epoch: int
    offset: int


class StartAt(NamedTuple):
    """Empty the log and let it begin at this offset; answer with `truncated`."""

    partition: Partition
    leader_epoch: int
    offset: int


class Flush(NamedTuple):
    """Make the log durable; answer with `flushed`."""

    partition: Partition
    leader_epoch: int


class LookUp(NamedTuple):
    """Ask the leader where its log begins and ends; answer with `looked_up`."""

    partition: Partition
    leader_epoch: int


class Complain(NamedTuple):
    """Something an operator should read."""

    message: str


Effect: TypeAlias = Truncate | StartAt | Flush | LookUp | Complain


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """Kafka's names: replica.fetch.*."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000


class Followed:
    """A partition and what it waits for."""

    __slots__ = ("partition", "ready_ms", "state")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.state = State.FETCHING
        self.ready_ms = 0
        """Of DELAYED: when it is tried again."""


class ReplicaFetcher:
    """One request is under way at a time; `next_request`, then `answered` or `failed`."""

    def __init__(self, replica_id: int, settings: FetcherSettings) -> None:
        self._replica_id = replica_id
        self._settings = settings
        self._session = ReplicaSession()
        self._followed: dict[Key, Followed] = {}
        self._asked: dict[Key, int] = {}
        """The partitions in the request under way, and the leader epoch in which they were asked for."""

    def __bool__(self) -> bool:
        return bool(self._followed)

    @property
    def partitions(self) -> Iterable[Partition]:
        return (each.partition for each in self._followed.values())

    # What is followed

    def follow(self, partition: Partition) -> None:
        """From the end of its log, in its leader epoch; again after a change of the epoch."""
        self._followed[partition.topic_id, partition.index] = Followed(partition)

    def unfollow(self, partition: Partition) -> None:
        self._followed.pop((partition.topic_id, partition.index), None)

    # Fetching

    def next_request(self, broker_epoch: int, now_ms: int) -> FetchRequest | None:
        """None where there is nothing to fetch now: look again after an effect is done, or at `next_deadline_ms`."""
        wanted: dict[Key, FetchPartition] = {}
        for key, followed in self._followed.items():
            if followed.state is State.DELAYED and now_ms >= followed.ready_ms:
                followed.state = State.FETCHING
            if followed.state is State.FETCHING:
                wanted[key] = self._wish(followed.partition)
        if not wanted:
            return None
        settings = self._settings
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._replica_id, replica_epoch=broker_epoch),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
        )
        self._session.fill(request, wanted)
        self._asked = {key: wish.current_leader_epoch for key, wish in wanted.items()}
        return request

    def next_deadline_ms(self) -> int | None:
        """When the first delayed partition is to be tried again."""
        return min((each.ready_ms for each in self._followed.values() if each.state is State.DELAYED), default=None)

    def _wish(self, partition: Partition) -> FetchPartition:
        log = partition.log
        return FetchPartition(
            partition=partition.index,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=log.end_offset,
            last_fetched_epoch=log.epochs.latest_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self._settings.max_bytes,
            high_watermark=partition.high_watermark,
        )

    def failed(self, now_ms: int) -> None:
        """No answer: the session is lost, and everything asked for waits a while."""
        self._session.reset()
        for key in self._asked:
            followed = self._followed.get(key)
            if followed is not None and followed.state is State.FETCHING:
                self._delay(followed, now_ms)
        self._asked = {}

    def answered(self, response: FetchResponse, wall_ms: int, now_ms: int) -> Iterator[Effect]:
        """Take what came. Draw all effects before the next request is asked for."""
        asked, self._asked = self._asked, {}
        if response.error_code != ErrorCode.NONE:
            self._session.reset()
            if response.error_code not in SESSION_ERRORS:
                yield Complain(f"a fetch was refused: {ErrorCode(response.error_code).name}")
                for key in asked:
                    if key in self._followed:
                        self._delay(self._followed[key], now_ms)
            return
        self._session.accepted(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed = self._followed.get(key)
                if followed is None or followed.state is not State.FETCHING:
                    continue  # given up meanwhile
                if asked.get(key) != followed.partition.leader_epoch:
                    continue  # an answer to a follower of an earlier epoch
                yield from self._take(followed, data, wall_ms, now_ms)

    def _take(self, followed: Followed, data: PartitionData, wall_ms: int, now_ms: int) -> Iterator[Effect]:
        partition = followed.partition
        error = ErrorCode(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.state = State.LOOKING_UP
            yield LookUp(partition, partition.leader_epoch)
        elif error is not ErrorCode.NONE:
            self._delay(followed, now_ms)
        elif data.diverging_epoch is not None and data.diverging_epoch.epoch != UNDEFINED:
            followed.state = State.TRUNCATING
            offset = truncation_offset(partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            yield Truncate(partition, partition.leader_epoch, offset)
        else:
            yield from self._append(followed, data, wall_ms, now_ms)

    def _append(self, followed: Followed, data: PartitionData, wall_ms: int, now_ms: int) -> Iterator[Effect]:
        partition = followed.partition
        records = data.records or b""
        assert isinstance(records, bytes | memoryview), "a reply that was received lies in memory"
        result = partition.append_fetched(records, data.high_watermark, data.log_start_offset, wall_ms)
        if result.error is not ErrorCode.NONE:
            self._delay(followed, now_ms)
            yield Complain(f"{partition.topic}-{partition.index}: cannot take the leader's batches: {result}")
        elif partition.log.unflushed_count >= partition.log.config.flush_messages:
            followed.state = State.FLUSHING
            yield Flush(partition, partition.leader_epoch)

    def _delay(self, followed: Followed, now_ms: int) -> None:
        followed.state = State.DELAYED
        followed.ready_ms = now_ms + self._settings.backoff_ms

    # Answers to effects; those of an earlier leader epoch come too late.

    def truncated(self, partition: Partition, leader_epoch: int) -> None:
        self._resume(partition, leader_epoch, State.TRUNCATING)

    def flushed(self, partition: Partition, leader_epoch: int) -> None:
        self._resume(partition, leader_epoch, State.FLUSHING)

    def look_up_failed(self, partition: Partition, leader_epoch: int, now_ms: int) -> None:
        followed = self._current(partition, leader_epoch, State.LOOKING_UP)
        if followed is not None:
            self._delay(followed, now_ms)

    def looked_up(
        self, partition: Partition, leader_epoch: int, start_offset: int, end_offset: int
    ) -> Iterator[Effect]:
        """The leader's log holds `start_offset` ≤ offset < `end_offset`."""
        followed = self._current(partition, leader_epoch, State.LOOKING_UP)
        if followed is None:
            return
        followed.state = State.TRUNCATING
        if partition.log.end_offset > end_offset:
            yield Complain(f"{partition.topic}-{partition.index}: the leader's log ends at {end_offset}, before ours")
            yield Truncate(partition, leader_epoch, end_offset)
        elif partition.log.end_offset < start_offset:
            yield StartAt(partition, leader_epoch, start_offset)
        else:
            followed.state = State.FETCHING

    def _resume(self, partition: Partition, leader_epoch: int, state: State) -> None:
        followed = self._current(partition, leader_epoch, state)
        if followed is not None:
            followed.state = State.FETCHING

    def _current(self, partition: Partition, leader_epoch: int, state: State) -> Followed | None:
        followed = self._followed.get((partition.topic_id, partition.index))
        if followed is None or followed.partition is not partition or partition.leader_epoch != leader_epoch:
            return None
        return followed if followed.state is state else None


def truncation_offset(partition: Partition, epoch: int, end_offset: int) -> int:
    """Where our log may agree with the leader's, whose epochs up to `epoch` end at `end_offset`: never past either.

    Where we do not have that epoch, the one before it decides, and the next fetch asks again from there (KIP-595).
    """
    ours = partition.log.end_offset_for_epoch(epoch)
    if ours.epoch == UNDEFINED:
        # Our log has no epoch at or below it: nothing that we hold is the leader's.
        return min(partition.log.log_start_offset, end_offset)
    return min(ours.end_offset, end_offset)
