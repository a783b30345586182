"""Which records `moldau topic delete-records` deletes, and what it says of partitions that do not exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tests.support.staged_brokers import StagedBrokers


def deleted(request: DeleteRecordsRequest, end: int) -> DeleteRecordsResponse:
    """The answer of a leader whose log ends at `end`."""
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, low_watermark=end if each.offset == -1 else each.offset
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DeleteRecordsResponse(topics=topics)


def test_records_that_are_written_after_the_command_began_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = StagedBrokers({DeleteRecordsRequest: lambda _, request: deleted(request, 7)}, end=5)
    assert stage.run(monkeypatch, "topic", "delete-records", "t", "--before", "latest", "--execute", "--json") == 0
    row = {"topic": "t", "partition": 0, "start": 0, "new_start": 5, "deleted": 5}
    assert json.loads(capsys.readouterr().out) == row


def test_a_partition_that_does_not_exist_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text('{"partitions": [{"topic": "t", "partition": 9, "offset": 5}]}')
    stage = StagedBrokers({})
    words = ["topic", "delete-records", "--offset-json-file", str(file), "--timeout", "0.3"]
    assert stage.run(monkeypatch, *words) == 3
    assert capsys.readouterr().err == "moldau: topic t has no partition 9: it has 1\n"
