"""Which answers to a Fetch end the log of a backup from a running cluster."""

from __future__ import annotations

import pytest

from moldau.backup.cutting import LogCutter, MemoryContent
from moldau.backup.manifest import PartitionKey
from moldau.backup.sources.cluster import ClusterLog
from moldau.protocol.messages.fetch import FetchResponse
from moldau.tables.client.cluster import BrokersUnavailable, Cluster
from tests.support.scripted_leader import SETTINGS, TOPIC_ID, ScriptedLeader, batches


def cut(end: int) -> bytes:
    """The bytes of the piece that has orders-0 from 0 to `end`."""
    log = ClusterLog(Cluster(SETTINGS), PartitionKey("orders", TOPIC_ID, 0), 0, end)
    piece = LogCutter(log.open_reader(), 0, end, MemoryContent, 1 << 20).cut_next_piece()
    assert piece is not None and piece.piece.end_offset == end
    return b"".join(piece.content.parts)


def test_a_piece_has_the_records_that_remote_storage_returns_late(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = ScriptedLeader(monkeypatch, end=4, local_start=3)
    leader.answers = [leader.part(batches([0])), leader.part(), leader.part(), leader.part(batches([1, 2, 3]))]
    assert cut(4) == batches(range(4))


def test_a_backup_without_records_in_remote_storage_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = ScriptedLeader(monkeypatch, end=4, local_start=3)
    leader.answers = [leader.part(batches([0])), leader.part()]
    with pytest.raises(BrokersUnavailable, match="orders-0: offset 1 is in remote storage"):
        cut(4)


def test_a_log_whose_last_batches_were_compacted_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = ScriptedLeader(monkeypatch, end=4)
    leader.answers = [leader.part(batches([0])), leader.part()]
    assert cut(4) == batches([0])


def test_a_throttled_backup_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = ScriptedLeader(monkeypatch, end=1)
    leader.answers = [FetchResponse(throttle_time_ms=4_000), leader.part(batches([0]))]
    assert cut(1) == batches([0]) and leader.now_s >= 4
