"""Typical mistakes of a new user, in the kit, the configuration, the readers and the command line: each is answered by
one sentence that names the remedy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import moldau
from moldau.broker.cli import invocation
from moldau.broker.cli.command import main
from moldau.broker.config import ConfigError
from moldau.broker.config.loading import checked_config
from moldau.testing import AsyncCluster, Cluster, FaultRefused
from moldau.testing.faults import Faults
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log directory with the topics `orders` and `orders.json`."""
    directory = tmp_path_factory.mktemp("data")
    for topic in ("orders", "orders.json"):
        write_partition(directory, mixed_batches(1, 10), topic=topic)
        write_checkpoints(directory, {(topic, 0): 10})
    write_checkpoints(directory, {("orders", 0): 10, ("orders.json", 0): 10})
    return str(directory)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


Failing = Callable[[], object]

OF_THE_KIT: tuple[tuple[str, Failing, str], ...] = (
    ("users of a cluster that is not secure", lambda: Cluster(users=["carol"]), "add secure=True"),
    (
        "the same on an event loop",
        lambda: AsyncCluster(users=["carol"]),
        "add secure=True",
    ),
    ("one user in place of a list", lambda: Cluster(secure=True, users="carol"), 'such as ["alice"]'),
    ("settings as a text", lambda: Cluster(settings="num.partitions=3"), 'such as {"num.partitions": 3}'),  # type: ignore[arg-type]
    ("a list as a setting", lambda: Cluster(settings={"log.dirs": ["a", "b"]}), "lists have commas"),
    ("one that is not started", lambda: Cluster().produce("orders", "x"), "in a with block, or call start()"),
    ("a number of nodes as a text", lambda: Cluster("3"), "has at least one node"),  # type: ignore[arg-type]
)


@pytest.mark.parametrize(("failing", "remedy"), [each[1:] for each in OF_THE_KIT], ids=[each[0] for each in OF_THE_KIT])
def test_arguments_of_a_cluster(failing: Failing, remedy: str) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError)) as raised:
        failing()
    assert remedy in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.processes
def test_a_setting_that_is_misspelt_in_a_test() -> None:
    sentence = r"num\.partitons is not a name that .* knows; it has no effect \(did you mean num\.partitions\?\)"
    with pytest.raises(ValueError, match=sentence):
        Cluster(settings={"num.partitons": 3}).start()

    async def start() -> None:
        await AsyncCluster(settings={"num.partitons": 3}).start()

    with pytest.raises(ValueError, match=sentence):
        asyncio.run(start())


@pytest.mark.processes
def test_what_is_asked_of_a_cluster(kafka: Cluster) -> None:
    with pytest.raises(TypeError, match=r"the value is of type dict: text or bytes are needed, such as json\.dumps"):
        kafka.produce("orders", {"pieces": 3})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the key is of type int: text or bytes are needed"):
        kafka.produce("orders", "x", key=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a dictionary or pairs are needed, such as"):
        kafka.produce("orders", "x", headers=["trace"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"those of a secure cluster: @pytest\.mark\.moldau\(secure=True\)"):
        kafka.allow("alice", "READ", topic="orders")
    with pytest.raises(TypeError, match="the count is '3': a number is needed"):
        kafka.records("orders", "3")  # type: ignore[arg-type]
    with pytest.raises(FaultRefused, match="add the fixture kafka_faults to the test"):
        kafka.clock.advance(hours=1)
    with pytest.raises(AssertionError, match=r"0 of 1 records are in ordrs after 0\.1 s: there is no such topic"):
        kafka.records("ordrs", 1, timeout_s=0.1)
    assert isinstance(kafka.faults, Faults) and kafka.topics() == []


@pytest.mark.processes
def test_permissions_of_a_secure_cluster() -> None:
    with Cluster(secure=True) as kafka:
        with pytest.raises(ValueError, match=r"carol is not one of the users alice, bob \(the argument users\)"):
            kafka.allow("carol", "READ", topic="orders")
        with pytest.raises(ValueError, match="CONSUME is not an operation on a topic: ALL, READ, WRITE"):
            kafka.allow("alice", "CONSUME", topic="orders")
        with pytest.raises(ValueError, match="WRITE is not an operation on a group: ALL, READ"):
            kafka.allow("alice", "WRITE", group="kitchen")


def test_a_setting_that_is_misspelt_in_a_file() -> None:
    (warning,) = checked_config(NODE | {"log.retention.hour": "24"}).warnings
    assert warning.endswith("it has no effect (did you mean log.retention.hours?).")
    (warning,) = checked_config(NODE | {"zzz": "24"}).warnings
    assert "did you mean" not in warning


def test_a_home_folder_in_a_file() -> None:
    (warning,) = checked_config(NODE | {"log.dirs": "~/data"}).warnings
    assert warning == "log.dirs=~/data: ~ is a home folder in a shell alone; here it is a folder ~."


@pytest.mark.parametrize(
    ("listeners", "remedy"),
    [
        ("9092,CONTROLLER://:9093", "a listener is NAME://HOST:PORT, such as PLAINTEXT://:9092"),
        ("INSIDE://:9092,CONTROLLER://:9093", "listener.security.protocol.map takes INSIDE:PLAINTEXT"),
    ],
)
def test_listeners_that_are_no_addresses(listeners: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as raised:
        checked_config(NODE | {"listeners": listeners})
    (problem,) = raised.value.problems
    assert remedy in problem


def test_a_value_that_a_setting_does_not_take() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions takes int, at least 1"):
        checked_config(NODE | {"num.partitions": "six"})


OF_READERS: tuple[tuple[str, Callable[[str], object], str], ...] = (
    ("a topic that is misspelt", lambda data: moldau.read_topic(data, "ordrs"), "(did you mean orders?)"),
    ("no topic", lambda data: moldau.read_topic(data), "no topic is named"),
    (
        "a column that is misspelt",
        lambda data: moldau.read_topic(data, "orders", columns=["ofset"]),
        "(did you mean offset?); the columns are key",
    ),
    (
        "an option that is misspelt",
        lambda data: moldau.read_topic(data, "orders", options={"failOnDataLos": "false"}),
        "(did you mean failOnDataLoss?)",
    ),
    (
        "a start without a time zone",
        lambda data: moldau.read_topic(data, "orders", start="2026-11-20"),  # type: ignore[arg-type]
        "a time with a time zone",
    ),
    ("a directory that is not there", lambda data: moldau.read_topic(f"{data}/no", "orders"), "is not a directory"),
    (
        "the directory of a partition",
        lambda data: moldau.read_topic(f"{data}/orders-0", "orders"),
        "is one partition: name the log directory that has it, ",
    ),
    (
        "one column in place of a list",
        lambda data: moldau.read_topic(data, "orders", columns="offset"),
        'a list is needed, such as ["offset"]',
    ),
)


@pytest.mark.parametrize(("failing", "remedy"), [each[1:] for each in OF_READERS], ids=[each[0] for each in OF_READERS])
def test_arguments_of_a_reader(failing: Callable[[str], object], remedy: str, data: str) -> None:
    with pytest.raises(ValueError) as raised:
        failing(data)
    assert remedy in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("select * from orders.json", '"orders.json"'),
        ("select offset from orders", '"offset"'),
        ('select nothing from "orders.json" offset 3', None),
    ],
)
def test_names_that_need_quotes_in_a_query(
    query: str, named: str | None, data: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    pytest.importorskip("duckdb")
    assert main(["read", "--path", data, "--sql", query]) == 1
    last = capfdbinary.readouterr().err.decode().splitlines()[-1]
    if named is None:
        assert "double quotes" not in last
    else:
        assert last.endswith(f"in SQL these names need double quotes: {named}")


@pytest.mark.parametrize(
    ("words", "missing", "sentence"),
    [
        ("read --sql x", {"duckdb"}, "duckdb is not installed: .venv/bin/pip install -e '.[sql]'"),
        ("read --sql x", {"duckdb", "numpy"}, "duckdb and numpy are not installed: .venv/bin/pip install -e '.[sql]'"),
        (
            "read --topic t",
            {"pyarrow", "numpy"},
            "pyarrow and numpy are not installed: .venv/bin/pip install -e '.[arrow]'",
        ),
        (
            "follow-table --topic t --table a.b --warehouse w",
            {"pyiceberg", "pyarrow", "numpy", "sqlalchemy"},
            "pyiceberg, pyarrow, numpy and sqlalchemy are not installed: .venv/bin/pip install -e '.[iceberg]'",
        ),
        ("backup store", {"aiofiles"}, "aiofiles is not installed: .venv/bin/pip install -e '.[tiered]'"),
        ("backup s3://bucket/a", {"obstore"}, "obstore is not installed: .venv/bin/pip install -e '.[tiered]'"),
    ],
)
def test_an_extra_that_is_not_installed(
    words: str,
    missing: set[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(invocation, "find_spec", lambda package: None if package in missing else object())
    assert main([*words.split(), "--path", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines() == [f"moldau: {sentence}"]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("serv", "did you mean serve"),
        ("serve --overide num.partitions=3", "did you mean --override"),
        ("topic list --broker h:1", "did you mean --bootstrap-server?"),
        ("topic --list --bootstrap-server h:1", "did you mean list?"),
        ("topic create orders --replicas 3", "did you mean --replication-factor?"),
        ("consume orders --from-beginning", "did you mean --from earliest?"),
        ("consume --topic orders", "did you mean TOPIC[:PARTITION,...] without --topic?"),
        ("topic create --topic orders", "did you mean TOPIC without --topic?"),
        (
            "config --alter --entity-type topics --entity-name orders --add-config cleanup.policy=[compact,delete],a=1",
            "did you mean 'moldau config set topic orders cleanup.policy=compact,delete a=1'?",
        ),
        ("config --add-config a=1", "did you mean 'moldau config set KIND NAME a=1'?"),
        ("config --alter --topic orders", "did you mean 'moldau config set topic orders SETTING=VALUE'?"),
        ("config --bootstrap-server h:1 --describe --topic orders", "did you mean 'moldau config get topic orders'?"),
        (
            "config --alter --broker 1 --delete-config log.cleaner.threads,a",
            "did you mean 'moldau config unset broker 1 log.cleaner.threads a'?",
        ),
        (
            "config --entity-type brokers --entity-default --alter --add-config a=1",
            "did you mean 'moldau config set brokers a=1'?",
        ),
        (
            "config --entity-type client-metrics --entity-name m --describe",
            "did you mean 'moldau config get client-metrics m'?",
        ),
        (
            "config --entity-type users --entity-name ada --alter --add-config SCRAM-SHA-256=[password=x]",
            "did you mean 'moldau user create ada'?",
        ),
        (
            "config --entity-type clients --entity-name loader --alter --add-config producer_byte_rate=1",
            "did you mean 'moldau quota set --client-id loader producer_byte_rate=1'?",
        ),
        ("config --entity-type users --describe", "did you mean 'moldau quota list --user NAME'?"),
        ("config get topics orders", "did you mean topic?"),
        ("config lst topic orders", "did you mean"),
    ],
)
def test_a_word_of_the_command_line_that_is_misspelt(
    words: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words.split())
    assert remedy in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("serve 9093", "9093 is not a file with settings: a port is given as --port 9093"),
        ("serve FOLDER", "FOLDER is not a file with settings: a directory for the data is given as --data FOLDER"),
        ("topic list -b PLAINTEXT://h:1", "a broker is named by host:port, without PLAINTEXT://"),
        ("restore gone.capture --to FOLDER/data", "gone.capture: no such file or directory"),
        ("backup FOLDER/gone --list", "FOLDER/gone: no such file or directory"),
    ],
)
def test_an_argument_of_another_kind(
    words: str, remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.replace("FOLDER", str(tmp_path)).split()) in (1, 2, 3)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith(remedy.replace("FOLDER", str(tmp_path)))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("produce orders hello", "hello is not a file; a value comes by standard input: echo hello | moldau produce"),
        ("consume orders --from begining", "begining is not earliest, latest, an offset, -N or a time: "),
    ],
)
def test_what_the_daily_commands_do_not_take(
    words: str, remedy: str, kafka: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    if "orders" not in kafka.topics():
        kafka.create_topic("orders")
    assert main([*words.split(), "-b", kafka.bootstrap_servers]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert remedy in said
