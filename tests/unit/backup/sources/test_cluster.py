"""A backup over the wire: the same pieces as from the directories; each refusal names its reason."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.backup.sources.cluster import ClusterSource
from moldau.backup.sources.port import LogDeleted, LogStartMoved
from moldau.tables.client.settings import Address, ClientSettings, parse_address
from moldau.tables.refusals import DataLost, Refused
from moldau.testing.cluster import Cluster
from tests.support.daily_command import DailyCommand

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(memory=False, settings={"offsets.topic.num.partitions": 2}) as made:
        made.create_topic("orders", 2)
        for number in range(40):
            made.produce("orders", b"%d" % number * 50, partition=number % 2)
        yield made


def source_of(cluster: Cluster, *controllers: Address) -> ClusterSource:
    bootstrap = tuple(parse_address(each) for each in cluster.bootstrap_servers.split(","))
    return ClusterSource(ClientSettings(bootstrap, request_timeout_ms=2_000), controllers, lambda: 1_000)


def pieces(store: Path) -> set[str]:
    return {str(each.relative_to(store)) for each in (store / "pieces").rglob("*") if each.is_file()}


def test_the_pieces_are_those_of_the_directories(cluster: Cluster, tmp_path: Path) -> None:
    run = DailyCommand(cluster.bootstrap_servers)
    places = [tmp_path / "wire", tmp_path / "files"]
    for place in places:
        place.mkdir()
    (wire,) = run.rows("backup", str(places[0]))
    (files,) = run.rows("backup", str(places[1]), "--path", f"{cluster.directory}/node-1")
    assert pieces(places[0]) == pieces(places[1]) and len(pieces(places[0])) >= 2
    assert wire["copied_bytes"] == files["copied_bytes"] > 2_000
    cluster.produce("orders", b"later", partition=1)
    (again,) = run.rows("backup", str(places[0]), "--keep", "1")[:1]
    assert again["pieces"] == 1 and again["kept_bytes"] == wire["copied_bytes"]
    assert run("backup", str(places[0]), "--verify").status == 0


def test_what_a_log_says_of_itself(cluster: Cluster) -> None:
    source = source_of(cluster)
    try:
        logs = {str(each.key): each for each in source.list_log_ends().logs}
        log = logs["orders-0"]
        assert (log.start_offset, log.end_offset, log.place) == (0, 20, "the leader of orders-0")
        assert (
            log.has_epoch_up_to(0, 20)
            and not log.has_epoch_up_to(0, 21)
            and not log.has_epoch_up_to(5, 20)
            and not log.has_epoch_up_to(-1, 0)
        )
        with pytest.raises(DataLost, match="orders-0: the log ends before offset 21"):
            log.open_reader().read(21, 0)
        DailyCommand(cluster.bootstrap_servers).done(
            "topic", "delete-records", "orders", "--partition", "0", "--before", "7", "--execute"
        )
        with pytest.raises(LogStartMoved) as moved:
            log.open_reader().read(3, 0)
        assert moved.value.start_offset == 7
    finally:
        source.close()


def test_a_log_whose_topic_is_deleted_says_so_at_once(cluster: Cluster) -> None:
    source, run = source_of(cluster), DailyCommand(cluster.bootstrap_servers)
    run.done("topic", "create", "trial")
    run.done("produce", "trial", given="one")
    try:
        (log,) = (each for each in source.list_log_ends().logs if each.key.topic == "trial")
        run.done("topic", "delete", "trial", "--execute")
        with pytest.raises(LogDeleted):
            log.has_epoch_up_to(0, 1)
        run.done("topic", "create", "trial")
        with pytest.raises(LogDeleted, match="topic trial was deleted"):
            log.open_reader().read(0, 0)
    finally:
        run.done("topic", "delete", "trial", "--execute")
        source.close()


def test_controllers_that_cannot_be_reached_are_told(cluster: Cluster) -> None:
    source = source_of(cluster, Address("127.0.0.1", 1))
    began = time.monotonic()
    with pytest.raises(Refused, match=r"the metadata of the cluster: controller .*--bootstrap-controller names"):
        source.list_log_ends()
    assert time.monotonic() - began < 30


def test_a_user_without_the_rights_is_told(tmp_path: Path) -> None:
    with Cluster(secure=True, users=["alice"]) as made:
        made.create_topic("orders")
        words = [f"-X{name}={value}" for name, value in made.client_settings("java", "alice").items()]
        said = DailyCommand(made.bootstrap_servers)("backup", str(tmp_path), *words)
        assert said.status == 4 and "CLUSTER_AUTHORIZATION_FAILED" in said.failure
        assert not (tmp_path / "pieces").exists()
