"""`moldau restore` of the backup of a cluster: a node serves what it makes, and each mistake changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.testing.cluster import Cluster
from moldau.testing.ports import free_ports
from tests.support.daily_command import DailyCommand

pytestmark = pytest.mark.processes


class Stored:
    """A store with one backup, and what the cluster had then."""

    def __init__(self, place: Path) -> None:
        self.store = place / "store"
        self.store.mkdir()
        with Cluster(memory=False, settings={"offsets.topic.num.partitions": 2}) as cluster:
            run = DailyCommand(cluster.bootstrap_servers)
            cluster.create_topic("orders", 2)
            run.done("config", "set", "topic", "orders", "retention.ms=-1")
            self._write(cluster.bootstrap_servers)
            (self.taken,) = run.rows("backup", str(self.store))
        (manifest,) = (self.store / "backups").iterdir()
        assert sum(json.loads(manifest.read_text())["decided"].values()) > 0

    def _write(self, servers: str) -> None:
        """A committed transaction with the offset of a group, and an open one."""
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "done"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(10):
            producer.produce("orders", b"%d" % number, partition=0)
        group = Consumer({"bootstrap.servers": servers, "group.id": "readers"}).consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 7)], group, 30)
        producer.commit_transaction(30)
        left = Producer({"bootstrap.servers": servers, "transactional.id": "open", "linger.ms": 0})
        left.init_transactions(30)
        left.begin_transaction()
        left.produce("orders", b"open", partition=0)
        left.flush(30)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return Stored(tmp_path_factory.mktemp("restore"))


@pytest.fixture
def run() -> DailyCommand:
    return DailyCommand("127.0.0.1:1")


@contextmanager
def serving(data: Path) -> Iterator[str]:
    """A node on restored directories; its address."""
    client, controller = free_ports(2)
    words = ["serve", "--data", str(data)]
    for setting in (
        f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}",
        "group.initial.rebalance.delay.ms=0",
    ):
        words += ["--override", setting]
    with subprocess.Popen([sys.executable, "-m", "moldau", *words], stderr=subprocess.DEVNULL) as process:
        try:
            command, deadline = DailyCommand(f"127.0.0.1:{client}"), time.monotonic() + 60
            while command("topic", "list").status and time.monotonic() < deadline:
                assert process.poll() is None, "the node has ended"
            yield f"127.0.0.1:{client}"
        finally:
            process.terminate()
            process.wait(60)


def committed_records(servers: str) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "check", "isolation.level": "read_committed"}
        | {"enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    found = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            break
        if message is not None:
            found.append(message.value() or b"")
    consumer.close()
    return found


def test_a_node_serves_what_was_restored(stored: Stored, run: DailyCommand, tmp_path: Path) -> None:
    place, written = tmp_path / "restored", tmp_path / "report.json"
    (report,) = run.rows(
        "restore", str(stored.store), "--to", str(place), "--single-node", "1", "--report", str(written)
    )

    assert json.loads(written.read_text()) == report
    assert report["cluster_id"] == stored.taken["cluster_id"]
    assert [(each["transactional_id"], each["outcome"]) for each in report["appended_markers"]] == [("open", "abort")]
    assert report["undone_transactions"] == report["moved_group_offsets"] == []
    with serving(place / "1") as servers:
        assert committed_records(servers) == [b"%d" % number for number in range(10)]
        daily = DailyCommand(servers)
        (group,) = daily.rows("group", "describe", "readers")
        (offset,) = group["offsets"]
        assert (offset["topic"], offset["partition"], offset["committed"]) == ("orders", 0, 7)
        (row,) = daily.rows("config", "get", "topic", "orders")
        assert (row["setting"], row["value"]) == ("retention.ms", "-1")
        for name in ("done", "open"):
            producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce("orders", b"after", partition=0)
            producer.commit_transaction(30)
        assert committed_records(servers)[10:] == [b"after", b"after"]


def test_a_topic_under_another_name(stored: Stored, run: DailyCommand, tmp_path: Path) -> None:
    place = tmp_path / "restored"
    words = ["--single-node", "1", "--topics", "orders", "--rename", "orders=orders.before"]
    run.done("restore", str(stored.store), "--to", str(place), *words)
    with serving(place / "1") as servers:
        listed = DailyCommand(servers).rows("topic", "list")
    assert [each["topic"] for each in listed] == ["orders.before"]


def test_a_restored_topic_is_copied_into_a_cluster_that_runs(stored: Stored, run: DailyCommand, tmp_path: Path) -> None:
    """By the commands of docs/backup.md."""
    place = tmp_path / "restored"
    run.done("restore", str(stored.store), "--to", str(place), "--single-node", "1", "--topics", "orders")
    with serving(place / "1") as servers, Cluster() as running:
        daily = DailyCommand(running.bootstrap_servers)
        daily.done("topic", "create", "orders.before", "--partitions", "2")
        consumed = DailyCommand(servers).done("consume", "orders", "--read-committed", "--until-end", "--json")
        daily.done("produce", "orders.before", "--format", "records", given=consumed)
        after = daily.rows("consume", "orders.before", "--until-end")
    before = [json.loads(line) for line in consumed.splitlines()]
    assert [(each["partition"], each["value"], each["timestamp"]) for each in after] == [
        (each["partition"], each["value"], each["timestamp"]) for each in before
    ]
    assert [each["value"] for each in after] == [str(number) for number in range(10)]


def test_each_mistake_is_one_sentence_and_changes_nothing(stored: Stored, run: DailyCommand, tmp_path: Path) -> None:
    store, place = str(stored.store), tmp_path / "restored"

    def refused(status: int, *words: str) -> str:
        said = run("restore", *words)
        assert said.status == status, said
        assert not place.exists()
        return said.failure

    to = ("--to", str(place))
    assert "say where to" in refused(2, store)
    assert "there are no backups here" in refused(3, str(tmp_path), *to)
    assert "no such file or directory" in refused(3, str(tmp_path / "none"), *to)
    assert "there is no backup x" in refused(3, store, *to, "--backup", "x")
    assert "is not a time" in refused(2, store, *to, "--at", "yesterday")
    assert "is in the future" in refused(2, store, *to, "--at", "2999-01-01")
    assert "is after the backup" in refused(3, store, *to, "--at", "now")
    assert "nothing is as old as" in refused(1, store, *to, "--at", "2001-01-01")
    assert "has no topic other" in refused(1, store, *to, "--topics", "other")
    assert "--rename orders: it is written as" in refused(2, store, *to, "--rename", "orders")
    assert "--controller 1: it is written as" in refused(2, store, *to, "--controller", "1")
    assert "node 1 is the only one" in refused(2, store, *to, "--single-node", "1", "--controller", "2@a:1")
    file = tmp_path / "file"
    file.write_text("")
    assert "is a file" in refused(1, store, "--to", str(file))
    assert "is not empty" in refused(1, store, "--to", str(tmp_path))
    missing = str(tmp_path / "none" / "report.json")
    assert "does not exist" in refused(2, store, "--to", str(tmp_path / "new"), "--report", missing)
    assert {each.name for each in tmp_path.iterdir()} == {"file"}


def test_a_damaged_backup_restores_nothing(stored: Stored, run: DailyCommand, tmp_path: Path) -> None:
    piece = max((stored.store / "pieces").rglob("*"), key=lambda each: each.stat().st_size if each.is_file() else 0)
    data = piece.read_bytes()
    piece.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    try:
        said = run("restore", str(stored.store), "--to", str(tmp_path / "restored"))
    finally:
        piece.write_bytes(data)
    assert said.status == 1 and "its checksum is wrong" in said.failure
    assert not (tmp_path / "restored").exists()
