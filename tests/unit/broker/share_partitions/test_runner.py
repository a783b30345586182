"""The share partitions of a broker, on a leader alone: when one is loaded anew."""

from __future__ import annotations

import errno
from random import Random
from types import SimpleNamespace

import pytest

from moldau.broker.share_partitions.runner import SharePartitionRunner
from moldau.broker.share_partitions.settings import ShareSettings
from moldau.coordinator.share_coordinator.events import (
    InitializeState,
    ReadState,
    ShareStateConfig,
    StateRequest,
    WriteState,
)
from moldau.protocol.compression import RecordSizeExceeded
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.share.acquisition import AcquireParameters
from moldau.replication.share.changes import AcknowledgementBatch, ShareLimits
from moldau.storage.log.reading import TimestampedOffset
from tests.simulation.share_records.coordinator_host import Clock, StateHost
from tests.simulation.share_records.rules import ACCEPT, RELEASE, Generation, Life, Rules
from tests.simulation.share_records.swarm import KEY, Leadership, Node, Work
from tests.simulation.share_records.topic_log import TopicLog

SETTINGS = ShareSettings(ShareLimits(5, 500, 15_000, True), False, "earliest")


BY_TIME = SETTINGS._replace(offset_reset="by_duration:PT1H")


class LogByTime(TopicLog):
    """A log of ten records whose lookups by time have one outcome. It notes the errors that it is told about."""

    told: Exception | None = None
    local_start_offset = 4

    def __init__(self, outcome: Exception | int | None) -> None:
        super().__init__(Random(1))
        self.append(10)
        self.outcome = outcome

    def error_of_lookup(self, error: OSError | MalformedMessage) -> ErrorCode:
        self.told = error
        return ErrorCode.INVALID_RECORD if isinstance(error, RecordSizeExceeded) else ErrorCode.KAFKA_STORAGE_ERROR

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return None if self.outcome is None else TimestampedOffset(timestamp, self.outcome, 0)


def loaded(log: LogByTime, remote: TimestampedOffset | ErrorCode | None = None) -> SharePartitionRunner:
    """The share partition of a group that begins at a time, once its loading has ended."""
    rules = Rules(log, 5)
    host = StateHost(Random(1), Clock(), ShareStateConfig(), rules, lambda _: 1)
    node = Node(host, rules, BY_TIME, Work())
    node.leadership = Leadership(0, log)
    rules.generations[1] = Generation(0)
    host.call(None, InitializeState(None, KEY, 1, -1), lambda _: None)  # type: ignore[arg-type]
    host.deliver_call()

    async def find(partition: object, timestamp: int) -> TimestampedOffset | ErrorCode | None:
        return remote

    offsets = SimpleNamespace(find=find)
    node.partitions._ports = node.partitions._ports._replace(remote_offsets=offsets)  # type: ignore[arg-type]
    shared = node.partitions.get(KEY)
    assert isinstance(shared, SharePartitionRunner) and host.deliver_call()
    return shared


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (OSError(errno.EMFILE, "too many open files"), ErrorCode.KAFKA_STORAGE_ERROR),
        (MalformedMessage("a damaged batch"), ErrorCode.KAFKA_STORAGE_ERROR),
        (RecordSizeExceeded("a large record"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_time_that_cannot_be_looked_up_ends_the_share_partition(outcome: Exception, error: ErrorCode) -> None:
    log = LogByTime(outcome)
    shared = loaded(log)
    assert (shared.error, shared.is_loaded, log.told) == (error, False, outcome)


@pytest.mark.parametrize(
    ("here", "remote", "start_offset"),
    [
        (5, None, 5),
        (None, None, 10),
        (12, None, 10),  # The record is not committed.
        (5, TimestampedOffset(1, 2, 0), 2),
    ],
)
def test_a_group_begins_at_a_time(here: int | None, remote: TimestampedOffset | None, start_offset: int) -> None:
    assert loaded(LogByTime(here), remote).machine.start_offset == start_offset


def test_a_time_that_remote_storage_does_not_tell_ends_the_share_partition() -> None:
    assert loaded(LogByTime(5), ErrorCode.KAFKA_STORAGE_ERROR).error is ErrorCode.KAFKA_STORAGE_ERROR


class NewestFirst(Random):
    """The newest request on its way arrives first."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start - 1


class Waiting:
    """A fetch that waits, and the purgatory that is asked to check it."""

    def __init__(self) -> None:
        self.is_over = False
        self.checks = 0

    def check_one_soon(self, operation: object) -> None:
        assert operation is self
        self.checks += 1

    def checked(self) -> bool:
        """Whether it was to be checked since the last call."""
        checks, self.checks = self.checks, 0
        return checks > 0


def test_a_waiting_fetch_is_checked_when_what_it_waits_for_is_stored() -> None:
    """Records are there again, and the window of those in flight moves, when the share coordinator has answered."""
    log = TopicLog(Random(1))
    log.append(10)
    rules = Rules(log, 5)
    host = StateHost(Random(1), Clock(), ShareStateConfig(), rules, lambda _: 1)
    node = Node(host, rules, SETTINGS, Work())
    node.leadership = Leadership(0, log)
    rules.generations[1] = Generation(0)
    host.call(None, InitializeState(None, KEY, 1, -1), lambda _: None)  # type: ignore[arg-type]
    host.deliver_call()
    waiting = Waiting()
    node.partitions._ports = node.partitions._ports._replace(purgatory=waiting)  # type: ignore[arg-type]
    shared = node.partitions.get(KEY)
    assert isinstance(shared, SharePartitionRunner)
    shared.add_waiting_fetch(waiting)  # type: ignore[arg-type]
    assert not waiting.checked() and host.deliver_call() and waiting.checked(), "its state is loaded"
    for kind in (RELEASE, ACCEPT):
        shared.acquire_records(AcquireParameters("a", 500, 500, False, 0), log.read(0, 10, 10), ())
        shared.acknowledge("a", [AcknowledgementBatch(0, 9, [kind])], lambda *_: None)
        waiting.checked()
        while host.deliver_call():
            pass
        assert waiting.checked(), f"{kind} is stored"


def test_a_share_partition_is_loaded_anew_once_the_writes_of_the_one_before_are_stored() -> None:
    """All members have gone and come back while an acknowledgement was on its way to the share coordinator."""
    log = TopicLog(Random(1))
    log.append(10)
    asked: list[StateRequest] = []

    class Witness(Rules):
        def asked(self, life: Life | None, request: StateRequest) -> None:
            asked.append(request)
            super().asked(life, request)

    rules = Witness(log, 5)
    host = StateHost(Random(1), Clock(), ShareStateConfig(), rules, lambda _: 1)
    node = Node(host, rules, SETTINGS, Work())
    node.leadership = Leadership(0, log)
    rules.generations[1] = Generation(0)
    host.call(None, InitializeState(None, KEY, 1, -1), lambda _: None)  # type: ignore[arg-type]
    host.deliver_call()
    first = node.partitions.get(KEY)
    assert isinstance(first, SharePartitionRunner) and host.deliver_call()
    first.acquire_records(AcquireParameters("a", 500, 500, False, 0), log.read(0, 10, 10), ())
    answers: list[ErrorCode] = []
    first.acknowledge("a", [AcknowledgementBatch(0, 9, [ACCEPT])], lambda error, _: answers.append(error))
    node.partitions.on_group_left(KEY.group_id)
    second = node.partitions.get(KEY)
    assert isinstance(second, SharePartitionRunner) and second is not first and not second.is_loaded
    host.random = NewestFirst()
    assert host.deliver_call()
    assert [type(each) for each in asked] == [InitializeState, ReadState, WriteState], "the read waits for the write"
    while host.deliver_call():
        pass
    assert [type(each) for each in asked] == [InitializeState, ReadState, WriteState, ReadState]
    assert (answers, second.is_loaded, second.machine.start_offset) == ([ErrorCode.NONE], True, 10)
