"""Writes of a machine wait for their commit: in order, with one deadline each, and never longer than the machine."""

from __future__ import annotations

import pytest

from moldau.coordinator.runtime.machine import (
    Appended,
    AppendRefused,
    Committed,
    Effects,
    Loaded,
    MachineReply,
    Tick,
    Unloaded,
    Waiter,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.records.consumer_groups import ConsumerGroupMetadataKey
from moldau.protocol.records.stored_structs import encode_stored
from tests.support.counters import COMMIT_TIMEOUT_MS, IDLE_MS, Add, Count, CounterShard


def loaded() -> CounterShard:
    shard = CounterShard(0)
    shard.step(Loaded(), 0, 0)
    return shard


def add(shard: CounterShard, token: str, now_ms: int = 0) -> Effects:
    return shard.step(Add(Waiter(token, 0), "a", 1), now_ms, 0)


def test_a_reply_comes_with_the_commit_of_its_records() -> None:
    shard = loaded()
    written = add(shard, "first")
    assert len(written.records) == 1 and written.replies == []
    assert shard.step(Appended(1), 0, 0).replies == []
    assert (shard.committed, shard.latest("a")) == ({}, 1)
    assert shard.step(Committed(1), 0, 0).replies == [MachineReply("first", 1)]
    assert shard.committed == {"a": 1}


def test_an_append_that_commits_its_records_is_answered_in_the_same_step() -> None:
    shard = loaded()
    add(shard, "first")
    assert shard.step(Appended(1, 0), 0, 0).replies == []
    add(shard, "second")
    assert shard.step(Appended(2, 2), 0, 0).replies == [MachineReply("first", 1), MachineReply("second", 2)]
    assert (shard.committed, shard.committed_end_offset) == ({"a": 2}, 2)
    add(shard, "third")
    assert shard.step(Appended(3, 1), 0, 0).replies == []
    assert shard.committed_end_offset == 2, "a high watermark never goes back"


def test_replies_come_in_the_order_of_the_writes() -> None:
    shard = loaded()
    for number in (1, 2, 3):
        add(shard, f"add {number}")
        shard.step(Appended(number), 0, 0)
    assert shard.step(Committed(2), 0, 0).replies == [MachineReply("add 1", 1), MachineReply("add 2", 2)]
    assert shard.step(Committed(3), 0, 0).replies == [MachineReply("add 3", 3)]


def test_a_refused_write_changes_nothing_and_is_told_at_once() -> None:
    shard = loaded()
    add(shard, "first")
    effects = shard.step(AppendRefused(ErrorCode.NOT_ENOUGH_REPLICAS), 0, 0)
    assert effects.replies == [MachineReply("first", ErrorCode.NOT_ENOUGH_REPLICAS)]
    assert shard.latest("a") == 0


def test_a_write_that_no_reader_takes_is_refused_in_its_step() -> None:
    shard = loaded()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard, "record_of", lambda *_: encode_stored(ConsumerGroupMetadataKey(group_id="x" * 40_000), 0))
        effects = add(shard, "first")
    assert (effects.records, effects.replies) == ([], [MachineReply("first", ErrorCode.MESSAGE_TOO_LARGE)])
    (note,) = effects.notes
    assert note.startswith("nothing is written: ConsumerGroupMetadataKey cannot be stored: ")
    assert (shard.latest("a"), len(add(shard, "second").records)) == (0, 1)


def test_a_write_that_is_not_committed_in_time_fails_and_may_be_committed_later() -> None:
    shard = loaded()
    add(shard, "first")
    shard.step(Appended(1), 0, 0)
    assert shard.next_deadline_ms() == COMMIT_TIMEOUT_MS
    assert shard.step(Tick(), COMMIT_TIMEOUT_MS - 1, 0).replies == []
    effects = shard.step(Tick(), COMMIT_TIMEOUT_MS, 0)
    assert effects.replies == [MachineReply("first", ErrorCode.REQUEST_TIMED_OUT)]
    assert shard.step(Committed(1), COMMIT_TIMEOUT_MS, 0).replies == []
    assert shard.committed == {"a": 1}


def test_a_read_after_a_write_that_was_not_committed_in_time_waits_for_it() -> None:
    shard = loaded()
    add(shard, "first")
    shard.step(Appended(1), 0, 0)
    shard.step(Tick(), COMMIT_TIMEOUT_MS, 0)
    read = Add(Waiter("read", 0), "a", 0)
    assert shard.step(read, COMMIT_TIMEOUT_MS, 0).replies == [], "it would tell what may never be committed"
    assert shard.next_deadline_ms() == 2 * COMMIT_TIMEOUT_MS
    assert shard.step(Committed(1), COMMIT_TIMEOUT_MS, 0).replies == [MachineReply("read", 1)]
    assert shard.step(read, COMMIT_TIMEOUT_MS, 0).replies == [MachineReply("read", 1)]


def test_with_its_partition_a_machine_gives_up_what_is_not_committed() -> None:
    shard = loaded()
    add(shard, "first")
    shard.step(Appended(1), 0, 0)
    effects = shard.step(Unloaded(), 0, 0)
    assert effects.replies == [MachineReply("first", ErrorCode.NOT_COORDINATOR)]


def test_an_append_is_reported_before_anything_else() -> None:
    shard = loaded()
    add(shard, "first")
    with pytest.raises(AssertionError):
        add(shard, "second")


def test_a_deadline_writes_as_a_request_does() -> None:
    shard = CounterShard(1)
    shard.replay(Count("a", 5), 1)
    shard.step(Loaded(), 0, 0)
    assert shard.next_deadline_ms() == IDLE_MS
    assert len(shard.step(Tick(), IDLE_MS, 0).records) == 1
    shard.step(Appended(2), IDLE_MS, 0)
    shard.step(Committed(2), IDLE_MS, 0)
    assert (shard.committed, shard.next_deadline_ms()) == ({}, None)
