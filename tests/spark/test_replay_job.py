"""The job `replay` to a broker that runs: what is kept, and a replay that is stopped and started again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from moldau.spark_jobs.failures import reason_of
from moldau.spark_jobs.jobs import replay
from moldau.spark_jobs.jobs.replay import ReplayJob, ReplayTarget, plan_replay, run_replay
from moldau.spark_jobs.jobs.replay_state import DoneRounds, ReplayState
from moldau.tables.refusals import Refused
from tests.conformance.brokers import Broker, Moldau, Ports
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = Moldau(tmp_path_factory.mktemp("broker"), Ports().pair())
    started.format()
    started.start()
    yield started
    started.stop()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    write_partition(directory, mixed_batches(40, 10))
    write_partition(directory, mixed_batches(10, 10, first_offset=400), partition=1)
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 500})
    return directory


def create(broker: Broker, topic: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    kept = {"retention.ms": "-1"}  # the records have timestamps of years ago
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=kept)]).values():
        future.result()


def job(
    broker: Broker, logs: Path, topic: str, state: Path | None = None, *, partitions: bool = False, times: bool = False
) -> ReplayJob:
    target = ReplayTarget((broker.bootstrap,), topic, keeps_timestamps=times, keeps_partitions=partitions)
    return ReplayJob({"path": str(logs), "subscribe": "t"}, "t", target, str(state) if state else None)


def written(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("moldau").options(**given, **{"kafka.isolation.level": "read_committed"}).load()


def test_records_are_as_they_were(spark: SparkSession, broker: Broker, logs: Path) -> None:
    create(broker, "kept")
    planned = plan_replay(job(broker, logs, "kept", partitions=True, times=True))
    assert run_replay(spark, planned, print) == 500
    columns = ("key", "value", "headers", "timestamp", "partition")
    source = spark.read.format("moldau").option("subscribe", "t").option("includeHeaders", "true").load(str(logs))
    found = written(spark, broker, "kept").orderBy("partition", "offset").select(*columns).collect()
    assert found == source.orderBy("partition", "offset").select(*columns).collect()
    with pytest.raises(Refused, match="there is no topic nowhere at"):
        plan_replay(job(broker, logs, "nowhere"))
    create(broker, "narrow", partitions=1)
    with pytest.raises(Refused, match="--keep-partitions: t has partition 1, and narrow has 1 partitions"):
        plan_replay(job(broker, logs, "narrow", partitions=True))


def test_a_stopped_replay_writes_each_record_once(
    spark: SparkSession, broker: Broker, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "ROUND_SIZE", 60_000)
    create(broker, "once", partitions=3)
    asked = job(broker, logs, "once", tmp_path / "state")
    planned = plan_replay(asked)
    assert 3 <= planned.plan.rounds <= 8

    def stop(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_replay(spark, planned, stop)
    state = ReplayState(str(tmp_path / "state"))
    assert state.done().rounds == 1
    # The command was killed after the transactions were committed, and before the round was noted.
    state.note_done(DoneRounds(0, 0, state.done().records))
    # A task fails in the next round: what the other one wrote is aborted.
    narrow = replace(asked, target=replace(asked.target, keeps_partitions=True))
    with pytest.raises(Refused, match="state of another replay: keeps_partitions differ"):
        plan_replay(narrow)
    log = max((logs / "t-1").glob("*.log"))
    intact = log.read_bytes()
    log.write_bytes(intact[:-5] + bytes(5))
    with pytest.raises(PySparkException) as problem:
        run_replay(spark, plan_replay(asked), print)
    assert "checksum" in reason_of(problem.value)
    log.write_bytes(intact)
    assert run_replay(spark, plan_replay(asked), print) == 500
    found = written(spark, broker, "once").select("key", "value", "headers")
    assert found.count() == 500
    source = spark.read.format("moldau").option("subscribe", "t").option("includeHeaders", "true").load(str(logs))
    assert source.select("key", "value", "headers").exceptAll(found).count() == 0
    planned = plan_replay(asked)
    assert (planned.done, planned.records) == (planned.plan.rounds, 500)
