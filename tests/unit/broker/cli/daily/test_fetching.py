"""What the daily commands do with answers to Fetch that a broker of a test seldom gives."""

from __future__ import annotations

import json

import pytest

from moldau.broker.cli.daily import client
from moldau.broker.cli.daily.records.fetching import first_timestamps
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from moldau.protocol.record_builder import Record, build_batch
from tests.support.staged_brokers import StagedBrokers, fetched

RECORDS = build_batch([Record(b"k", b"one", 5), Record(b"k", b"two", 6)])


def throttled_at_first(data: bytes, end: int) -> StagedBrokers:
    """A broker that throttles the first Fetch of each two."""

    def answer(_: int, request: FetchRequest) -> FetchResponse:
        is_throttled = len(stage.of(FetchRequest)) % 2
        return FetchResponse(throttle_time_ms=1) if is_throttled else fetched(request, end, data)

    stage = StagedBrokers({FetchRequest: answer}, end=end)
    return stage


def test_a_throttled_reader_waits_and_fetches_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert throttled_at_first(RECORDS, 2).run(monkeypatch, "consume", "t", "-n", "2") == 0
    assert capsys.readouterr() == ("one\ntwo\n", "")
    assert throttled_at_first(RECORDS, 2).run(monkeypatch, "erase", "t", "--key", "k", "--json") == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert row == {"topic": "t", "partition": 0, "records": 2}


@pytest.mark.parametrize("words", [("consume", "t", "-n", "2"), ("erase", "t", "--key", "k", "--json")])
@pytest.mark.parametrize("end", ["stops", "loses the replica"])
def test_a_reader_goes_on_at_the_new_leader(
    end: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(node_id: int, request: FetchRequest) -> FetchResponse:
        if request.topics[0].partitions[0].fetch_offset == 0:
            stage.leaders = [1]
            stage.down = {2} if end == "stops" else set()
            return fetched(request, 4, RECORDS)
        if node_id == 2:
            return fetched(request, 4, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return fetched(request, 4, build_batch([Record(b"k", b"three"), Record(b"k", b"four")], base_offset=2))

    monkeypatch.setattr(client, "BACKOFF_S", 0.001)
    stage = StagedBrokers({FetchRequest: answer}, leaders=[2], end=4)
    stage.nodes = {1, 2}
    assert stage.run(monkeypatch, *words, *(["-n", "4"] if words[0] == "consume" else [])) == 0
    said = capsys.readouterr()
    assert said.err.count("moldau:") == 0
    assert said.out == "one\ntwo\nthree\nfour\n" if words[0] == "consume" else '"records": 4' in said.out
    assert {node_id for node_id, _ in stage.of(FetchRequest)} == {1, 2}


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_reader_waits_for_the_restart_of_the_only_broker(
    comes_back: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(_: int, request: FetchRequest) -> FetchResponse:
        if request.topics[0].partitions[0].fetch_offset:
            return fetched(request, 9, build_batch([Record(b"k", b"three")], base_offset=2))
        stage.down = {1}
        return fetched(request, 9, RECORDS)

    def sleep(_: float) -> None:
        stage.down = set() if comes_back else {1}

    monkeypatch.setattr("time.sleep", sleep)
    stage = StagedBrokers({FetchRequest: answer}, end=9)
    assert stage.run(monkeypatch, "consume", "t", "--from", "0", "-n", "3", "--timeout", "0.2") == (
        0 if comes_back else 5
    )
    said = capsys.readouterr()
    assert said.out.startswith("one\ntwo\n")
    assert said.err.startswith("" if comes_back else "moldau: no broker answers at broker:1 (Connection refused)")


@pytest.mark.parametrize("partitions", [1, 2])
def test_an_empty_answer_below_the_local_log_is_no_end(
    partitions: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(_: int, request: FetchRequest) -> FetchResponse:
        return fetched(request, 2, RECORDS if len(stage.of(FetchRequest)) > 3 else None)

    monkeypatch.setattr(client, "BACKOFF_S", 0.001)
    stage = StagedBrokers({FetchRequest: answer}, leaders=[1] * partitions, end=2)
    stage.local_start = 2
    assert stage.run(monkeypatch, "consume", "t", "--until-end") == 0
    assert capsys.readouterr() == ("one\ntwo\n" * partitions, "")


def test_remote_storage_that_gives_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = StagedBrokers({FetchRequest: lambda _, request: fetched(request, 2)}, end=2)
    assert stage.run(monkeypatch, "consume", "t", "--until-end", "--timeout", "0.2") == 0
    assert capsys.readouterr().err == "there is no record in t\n", "compaction has removed them"
    stage.local_start = 2
    assert stage.run(monkeypatch, "consume", "t", "--until-end", "--timeout", "0.2") == 5
    said = "moldau: the records: remote storage has not given offset 0 of t-0, for 0.2 s\n"
    assert capsys.readouterr().err == said


def committed_by_group(stage: StagedBrokers) -> int:
    """The last offset that a group has committed in the first partition."""
    (topic,) = stage.of(OffsetCommitRequest)[-1][1].topics
    return topic.partitions[0].committed_offset


@pytest.mark.parametrize(("words", "committed"), [(("--until-end",), 3), (("--until", "1"), 1), (("-n", "2"), 2)])
def test_a_group_commits_the_markers_behind_its_records(
    words: tuple[str, ...], committed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = build_batch([Record(b"\0\0\0\1", b"\0" * 6)], base_offset=2, is_transactional=True, is_control=True)
    coordinator = Coordinator(key="g", node_id=1, host="broker", port=1)
    stage = StagedBrokers(
        {
            FetchRequest: lambda _, request: fetched(request, 3, RECORDS + marker),
            ListGroupsRequest: lambda *_: ListGroupsResponse(groups=[]),
            FindCoordinatorRequest: lambda *_: FindCoordinatorResponse(coordinators=[coordinator]),
            OffsetCommitRequest: lambda *_: OffsetCommitResponse(topics=[]),
        },
        end=3,
    )
    assert stage.run(monkeypatch, "consume", "t", "--group", "g", *words) == 0
    assert committed_by_group(stage) == committed


def test_a_reader_goes_on_behind_records_that_are_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer OFFSET_OUT_OF_RANGE does not have the log start offset."""

    def answer(_: int, request: FetchRequest) -> FetchResponse:
        stage.start = 1
        if request.topics[0].partitions[0].fetch_offset == 0:
            return fetched(request, 2, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        return fetched(request, 2, RECORDS)

    stage = StagedBrokers({FetchRequest: answer}, end=2)
    assert stage.run(monkeypatch, "erase", "t", "--key", "k", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"topic": "t", "partition": 0, "records": 1}
    assert first_timestamps(stage.client(monkeypatch), {("t", 0): 0}) == {("t", 0): 6}
