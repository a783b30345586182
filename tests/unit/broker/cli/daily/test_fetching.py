"""What the daily commands do with answers to Fetch that a broker of a test seldom gives."""

from __future__ import annotations

import json

import pytest

from moldau.broker.cli.daily import client
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
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
