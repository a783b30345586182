"""A capture is served as it was, and a consumer's fault that only such data shows is found by a test."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from moldau.broker.cli.command import main
from moldau.testing import Cluster
from moldau.testing.node import NodeFailed

MINUTE_MS = 60_000
SECRET = "4111-1111"


def captured(path: Path, *options: str) -> int:
    """Capture two orders of which one is a return, of three and a former one. Returns the time of the first."""
    begin_ms = int(time.time() * 1000) + 10 * MINUTE_MS  # after the commit: the group stood there then
    with Cluster(memory=False) as kafka:
        kafka.create_topic("orders", 1, settings={"retention.ms": 1_000_000})
        for number, amount in enumerate((1, 3, -5, 7)):
            value = json.dumps({"amount": amount, "card": SECRET})
            kafka.produce("orders", value, key="ada", timestamp_ms=begin_ms + (number - 1) * MINUTE_MS)
        consumed(kafka, 1)
        assert kafka.directory is not None
        words = ["capture", str(path), "--path", str(kafka.directory / "node-1"), "--topic", "orders", *options]
        assert main([*words, "--from", str(begin_ms), "--to", str(begin_ms + 2 * MINUTE_MS)]) == 0
    return begin_ms


def consumed(kafka: Cluster, count: int) -> list[int]:
    """The amounts of the next orders of a group, which then commits."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["orders"])
    messages = consumer.consume(count, timeout=30)
    consumer.commit(messages[-1], asynchronous=False)
    consumer.close()
    return [json.loads(each.value())["amount"] for each in messages]


def total(amounts: list[int]) -> int:
    """What a consumer under test computes: it forgot that customers return things."""
    return sum(amount for amount in amounts if amount > 0)


@pytest.mark.processes
def test_a_node_serves_what_was_captured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tuesday.capture"
    masks = ("orders:value.card=drop", "*:key=hash", "orders:value.crad")
    begin_ms = captured(path, *(word for mask in masks for word in ("--mask", mask)))
    told = capsys.readouterr().err
    assert "--mask orders:value.crad has changed nothing" in told and told.count("has changed nothing") == 1
    with Cluster.from_capture(path, control=True) as kafka:
        first, second = kafka.records("orders")
        assert [(each.offset, each.timestamp_ms) for each in (first, second)] == [
            (1, begin_ms),
            (2, begin_ms + MINUTE_MS),
        ]
        assert (json.loads(first.value or b""), len(first.key or b"")) == ({"amount": 3}, 32)
        assert kafka.committed("billing") == {("orders", 0): 1}
        amounts = consumed(kafka, 2)
        assert (sum(amounts), total(amounts)) == (-2, 3)
        assert kafka.produce("orders", "{}").offset == 3
        kafka.create_topic("again")
        assert kafka.replay("orders", "again", clock=kafka.clock) == 3


@pytest.mark.processes
def test_another_file_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"no capture")
    with pytest.raises(NodeFailed, match="is not a capture"):
        Cluster.from_capture(tmp_path / "a").start()


def test_a_capture_has_one_node_and_no_users() -> None:
    for arguments in ({"nodes": 3}, {"secure": True}, {"memory": True}):
        with pytest.raises(ValueError, match="leave these out"):
            Cluster.from_capture("a", **arguments)
