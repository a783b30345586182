"""Each promise of the rule about compacted tables flags the violation that is planted for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_builder import Record, build_batch
from moldau.replication.leadership import InSyncSet, Leadership
from moldau.replication.partition import Partition
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from tests.simulation.invariants.compacted_tables import CompactedTables
from tests.simulation.invariants.observation import LogContent, Observation, Replica, Violation

CONFIG: Final = LogConfig(cleanup_policy=("compact",))
KEY: Final = (bytes(16), 0)
PRODUCER_ID: Final = 7
LEADER, FOLLOWER = 1, 2


def record(offset: int, key: bytes, value: bytes | None, *, is_transactional: bool = False) -> bytes:
    producer_id, epoch, sequence = (PRODUCER_ID, 0, 0) if is_transactional else (-1, -1, -1)
    return build_batch(
        [Record(key, value, 0)],
        base_offset=offset,
        partition_leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def marker(offset: int, *, commits: bool) -> bytes:
    return end_transaction_marker(
        commits=commits,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=offset,
        partition_leader_epoch=0,
    )


OLD, LATEST = record(0, b"a", b"old"), record(1, b"a", b"latest")
WRITTEN, DELETED = record(2, b"b", b"written"), record(3, b"b", None)
ABORTED = record(4, b"c", b"aborted", is_transactional=True)
MARKER, WRONG_COMMIT = marker(5, commits=False), marker(5, commits=True)
END = record(6, b"end", b"end")
COMMITTED = record(7, b"d", b"committed", is_transactional=True)
COMMIT, WRONG_ABORT = marker(8, commits=True), marker(8, commits=False)
HISTORY: Final = (OLD, LATEST, WRITTEN, DELETED, ABORTED, MARKER, END, COMMITTED, COMMIT)


def replica(node_id: int, *batches: bytes) -> Replica:
    """With a log of these batches, all of which are committed."""
    disk = SimulatedDisk()
    log = Log.open(disk, "/data/t-0", CONFIG, now_ms=0)
    for batch in batches:
        assert log.append_as_follower(batch, 0, 0).error == 0
    partition = Partition("t", KEY[0], 0, log, log.end_offset)
    if node_id == LEADER:
        partition.leadership = Leadership(LEADER, (LEADER,), InSyncSet((LEADER,), 0), 0, now_ms=0)
    content = LogContent()
    content.read(disk, log)
    return Replica(node_id, 1, cast("Any", None), partition, disk, content, True)


def look(rule: CompactedTables, *batches: bytes, life: int = 1) -> None:
    """At a leader that was never cleaned, and a follower with these batches."""
    follower = replica(FOLLOWER, *batches)
    follower.life = life
    pairs = [(KEY, replica(LEADER, *HISTORY)), (KEY, follower)]
    rule.check(cast("Observation", SimpleNamespace(all_replicas=lambda: pairs, nodes=[])))


def test_what_compaction_may_leave_is_no_violation() -> None:
    rule = CompactedTables()
    look(rule, *HISTORY)
    look(rule, LATEST, DELETED, ABORTED, MARKER, END, life=2)
    look(rule, LATEST, MARKER, END, life=3)


def test_a_replica_that_was_away_while_a_marker_came_and_went_is_no_violation() -> None:
    look(CompactedTables(), LATEST, DELETED, ABORTED, END)


@pytest.mark.parametrize(
    ("told", "batches"),
    [
        ("committed is", (record(1, b"a", b"another"), DELETED, END)),
        ("the latest of its key", (OLD, DELETED, END)),
        ("has dropped the tombstone", (LATEST, WRITTEN, END)),
        ("has dropped the marker", (LATEST, DELETED, ABORTED, END)),
        ("shows .* of an aborted transaction", (LATEST, DELETED, ABORTED, WRONG_COMMIT, END)),
        ("as aborted, which is not", (LATEST, DELETED, END, COMMITTED, WRONG_ABORT)),
    ],
)
def test_a_planted_violation_is_found(told: str, batches: tuple[bytes, ...]) -> None:
    rule = CompactedTables()
    look(rule, *HISTORY)
    with pytest.raises(Violation, match=told):
        look(rule, *batches, life=2)
